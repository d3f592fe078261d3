// Attribute structs as lists of fields, and the rules by which the text form leaves fields out. Printer and reader
// share them, so what one leaves out the other restores.
#pragma once

#include "ir/op.h"
#include <variant>

namespace fsdpc::text {

struct Field {
  llvm::StringRef name;
  std::variant<int64_t *, double *, bool *, std::string *, DType *, Symbol *, Shape *, std::vector<std::string> *,
               Dense *, Expression *>
      value;

  template <class T>
  T *as() const {
    T *const *pointer = std::get_if<T *>(&value);
    return pointer ? *pointer : nullptr;
  }
};
using Fields = llvm::SmallVector<Field, 8>;

/// Pointers into `attributes`, in the order of its `fields`.
Fields fieldsOf(AttributesBase &attributes);
/// Doubles by their bits: -0 differs from 0, nan equals nan.
bool equalFields(const Field &a, const Field &b);

/// A symbol that says what the node is about (`read @w`) stands right after the op; others are printed as
/// `over(@shard)`.
bool isPositional(const Field &field);

/// The type that restores left-out fields: the first result's, unless there is none or it is a token.
std::optional<Type> impliedType(llvm::ArrayRef<Type> resultTypes);
/// Does the first result's type say what this field says? Then it is printed only where the two differ.
bool isImplied(Op op, const Field &field);
bool agrees(const Field &field, const Type &implied);
void restore(const Field &field, const Type &implied);

/// dtype of a step of a fused body from those of its arguments; nullopt where the text must say it (cast).
std::optional<DType> stepDType(Op op, llvm::ArrayRef<DType> arguments);
/// dtype of a literal argument: that of the step's first other argument that has one (`nullopt`: a literal), else f32.
DType literalDType(Op op, llvm::ArrayRef<std::optional<DType>> arguments);

} // namespace fsdpc::text
