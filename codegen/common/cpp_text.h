// Pieces of C++ as text. Strings of a model (names, settings) go through `cppString`, and only into the side table.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// A string literal. Letters, digits and plain punctuation stay as they are, other bytes become three octal digits. So
/// there is never a trigraph or an escape that runs on. Ends at a zero byte, since the program reads it as a C string.
std::string cppString(llvm::StringRef text);
/// A value of `dtype` as an expression of exactly its type in emitted code: 0.5f, scalar::infinity, std::int64_t{3},
/// true.
std::string cppLiteral(DType dtype, double value);
std::string cppLiteral(const Dense &dense, int64_t index);
/// A number for a parameter of type double.
std::string cppDouble(double value);
/// float, double, Bfloat16, Float16, std::int64_t, std::int32_t, std::uint8_t, bool
llvm::StringRef cppType(DType dtype);
/// The type in which an element is computed: float for 16-bit floats.
llvm::StringRef cppValueType(DType dtype);
/// The function of runtime/common/address.h that returns a pointer to such elements: f32, i64, ...
llvm::StringRef cppAccessor(DType dtype);
/// DType::f32, for the runtime's enum.
std::string cppDType(DType dtype);
/// P + 0x1a40, W + 0x80
std::string cppPlace(Space space, int64_t offsetBytes);
/// {1, 2, 3}
std::string cppList(llvm::ArrayRef<int64_t> values);
/// f32[2048,384], as a comment
std::string typeComment(const Type &type);

/// Builds `{.rows = 4, .columns = 3}`: the struct of a kernel's shape, fields in the order of the declaration, defaults
/// left out.
class CppFields {
public:
  CppFields &number(llvm::StringRef name, int64_t value, int64_t defaultValue);
  CppFields &dtype(llvm::StringRef name, DType value); ///< left out for f32
  CppFields &number(llvm::StringRef name, int64_t value) { return text(name, std::to_string(value)); }
  CppFields &flag(llvm::StringRef name, bool value) { return value ? text(name, "true") : *this; }
  CppFields &real(llvm::StringRef name, double value) { return text(name, cppDouble(value)); }
  CppFields &text(llvm::StringRef name, llvm::StringRef value);
  std::string str() const { return "{" + fields + "}"; }

private:
  std::string fields;
};

} // namespace fsdpc
