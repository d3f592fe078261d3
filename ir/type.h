// Element types, shapes and the three kinds of value types.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdint>
#include <optional>
#include <string>

namespace fsdpc {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u8, boolean };

/// Bytes of one element in memory and in files.
int64_t byteSize(DType dtype);
/// The name in the text form: f64 f32 bf16 f16 i64 i32 u8 bool.
llvm::StringRef nameOf(DType dtype);
std::optional<DType> dtypeFromName(llvm::StringRef name);
inline bool isFloat(DType dtype) { return dtype <= DType::f16; }
inline bool isHalf(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; } ///< a float of 16 bits
inline bool isInteger(DType dtype) { return dtype >= DType::i64 && dtype <= DType::u8; }

using Shape = llvm::SmallVector<int64_t, 4>;

/// Product of the dims, 1 for a scalar. nullopt if it does not fit in int64_t.
std::optional<int64_t> checkedElements(llvm::ArrayRef<int64_t> shape);

/// Bytes of a tensor. nullopt above maxBytes, which no machine has. So products of bytes with small numbers, and the
/// sum of the bytes of a module, cannot overflow.
inline constexpr int64_t maxBytes = int64_t(1) << 46;
std::optional<int64_t> checkedBytes(DType dtype, llvm::ArrayRef<int64_t> shape);

/// The smallest multiple that is at least `value`, which is 0 or more.
inline int64_t roundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// A tensor, a tensor that a collective will deliver (future), or a pure ordering edge (token).
/// Shapes are those of one rank and one micro-step. Dims are >= 0, and the size is checked on construction.
class Type {
public:
  enum class Kind : uint8_t { tensor, future, token };

  Type() = default;
  Type(DType dtype, llvm::ArrayRef<int64_t> shape) : elementType(dtype), dims(shape.begin(), shape.end()) {}
  static Type token();
  static Type future(const Type &tensor);

  Kind kind() const { return typeKind; }
  bool isTensor() const { return typeKind == Kind::tensor; }
  bool isFuture() const { return typeKind == Kind::future; }
  bool isToken() const { return typeKind == Kind::token; }
  DType dtype() const { return elementType; }
  llvm::ArrayRef<int64_t> shape() const { return dims; }
  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t dim(int64_t axis) const { return dims[axis < 0 ? axis + rank() : axis]; }
  bool isScalar() const { return isTensor() && dims.empty(); }
  /// 0 for a token. A future has the elements of the tensor that it delivers.
  int64_t elements() const;
  int64_t bytes() const;
  /// The tensor that a future delivers.
  Type delivered() const { return Type(elementType, dims); }
  Type withShape(llvm::ArrayRef<int64_t> shape) const { return Type(elementType, shape); }
  Type withDType(DType dtype) const { return Type(dtype, dims); }

  friend bool operator==(const Type &a, const Type &b) {
    return a.typeKind == b.typeKind && a.elementType == b.elementType && a.dims == b.dims;
  }

private:
  Kind typeKind = Kind::tensor;
  DType elementType = DType::f32;
  Shape dims;
};

/// f32[4,64], f32[], future<f32[128]>, token
llvm::raw_ostream &operator<<(llvm::raw_ostream &out, const Type &type);
std::string toString(const Type &type);

} // namespace fsdpc
