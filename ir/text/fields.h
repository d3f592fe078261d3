// Attribute structs as lists of fields, and the rules by which the text form omits fields. Printer and reader share
// them, so the reader restores exactly the fields that the printer omits.
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

/// A symbol that names the subject of the node (`read @w`) is printed right after the op. Others are printed as
/// `over(@shard)`.
bool isPositional(const Field &field);

/// The type that restores omitted fields: that of the first result, unless there is no result or it is a token.
std::optional<Type> impliedType(llvm::ArrayRef<Type> resultTypes);
/// True if the first result's type implies this field. The field is then printed only if the two differ.
bool isImplied(Op op, const Field &field);
bool agrees(const Field &field, const Type &implied);
void restore(const Field &field, const Type &implied);

/// dtype of a step of a fused body, from those of its arguments. nullopt if the text must state it (cast).
std::optional<DType> stepDType(Op op, llvm::ArrayRef<DType> arguments);
/// dtype of a literal argument: that of the step's first other argument with a dtype (`nullopt`: a literal), else f32.
DType literalDType(Op op, llvm::ArrayRef<std::optional<DType>> arguments);

} // namespace fsdpc::text
