#include "codegen/common/cpp_text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <cmath>

namespace fsdpc {

std::string cppString(llvm::StringRef text) {
  static constexpr llvm::StringLiteral plain = " !#$%&'()*+,-./:;<=>@[]^_`{|}~";
  std::string literal = "\"";
  for (char character : text) {
    if (character == 0)
      break;
    if (llvm::isAlnum(character) || plain.contains(character)) {
      literal += character;
      continue;
    }
    auto byte = static_cast<unsigned char>(character);
    literal += {'\\', static_cast<char>('0' + byte / 64), static_cast<char>('0' + byte / 8 % 8),
                static_cast<char>('0' + byte % 8)};
  }
  return literal + "\"";
}

/// Digits that read back to the same double, with a point or an exponent so that it is no integer.
static std::string decimal(double value, int digits) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.*g", digits, value);
  if (text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text;
}

static std::string shortest(double value, bool isSingle) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = decimal(value, digits);
    bool same = isSingle ? std::strtof(text.c_str(), nullptr) == static_cast<float>(value)
                         : std::strtod(text.c_str(), nullptr) == value;
    if (same)
      return text;
  }
  return decimal(value, 17);
}

std::string cppDouble(double value) {
  if (std::isnan(value))
    return "std::numeric_limits<double>::quiet_NaN()";
  if (std::isinf(value))
    return value < 0 ? "-std::numeric_limits<double>::infinity()" : "std::numeric_limits<double>::infinity()";
  return shortest(value, false);
}

static std::string integerLiteral(DType dtype, int64_t value) {
  if (value == std::numeric_limits<int64_t>::min())
    return "std::numeric_limits<std::int64_t>::min()";
  return (cppType(dtype) + "{" + llvm::Twine(value) + "}").str();
}

std::string cppLiteral(DType dtype, double value) {
  switch (dtype) {
  case DType::f32:
    if (std::isnan(value))
      return "scalar::notANumber";
    if (std::isinf(static_cast<float>(value)))
      return value < 0 ? "-scalar::infinity" : "scalar::infinity";
    return shortest(static_cast<float>(value), true) + "f";
  case DType::bf16:
  case DType::f16: return cppLiteral(DType::f32, roundedTo(dtype, value));
  case DType::boolean: return value != 0 ? "true" : "false";
  case DType::i64:
  case DType::i32:
  case DType::u8: return integerLiteral(dtype, Dense::splat(dtype, value).integerAt(0));
  default: return cppDouble(value);
  }
}

std::string cppLiteral(const Dense &dense, int64_t index) {
  if (isInteger(dense.dtype()))
    return integerLiteral(dense.dtype(), dense.integerAt(index));
  return cppLiteral(dense.dtype(), dense.at(index));
}

llvm::StringRef cppType(DType dtype) {
  switch (dtype) {
  case DType::f64: return "double";
  case DType::f32: return "float";
  case DType::bf16: return "Bfloat16";
  case DType::f16: return "Float16";
  case DType::i64: return "std::int64_t";
  case DType::i32: return "std::int32_t";
  case DType::u8: return "std::uint8_t";
  case DType::boolean: return "bool";
  }
  return "";
}

llvm::StringRef cppValueType(DType dtype) { return cppType(isHalf(dtype) ? DType::f32 : dtype); }

llvm::StringRef cppAccessor(DType dtype) {
  switch (dtype) {
  case DType::f64: return "f64";
  case DType::f32: return "f32";
  case DType::bf16: return "bf16";
  case DType::f16: return "f16";
  case DType::i64: return "i64";
  case DType::i32: return "i32";
  case DType::u8: return "u8";
  case DType::boolean: return "boolean";
  }
  return "";
}

std::string cppDType(DType dtype) {
  return "DType::" + (dtype == DType::boolean ? std::string("boolean") : nameOf(dtype).str());
}

std::string cppPlace(Space space, int64_t offsetBytes) {
  static constexpr llvm::StringLiteral names[] = {"P", "W", "H"};
  return (names[indexOf(space)] + " + 0x").str() +
         llvm::utohexstr(static_cast<uint64_t>(offsetBytes), /*LowerCase=*/true);
}

std::string cppList(llvm::ArrayRef<int64_t> values) {
  std::string text = "{";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "}";
}

std::string typeComment(const Type &type) { return toString(type.isFuture() ? type.delivered() : type); }

CppFields &CppFields::number(llvm::StringRef name, int64_t value, int64_t defaultValue) {
  return value == defaultValue ? *this : number(name, value);
}

CppFields &CppFields::dtype(llvm::StringRef name, DType value) {
  return value == DType::f32 ? *this : text(name, cppDType(value));
}

CppFields &CppFields::text(llvm::StringRef name, llvm::StringRef value) {
  if (!fields.empty())
    fields += ", ";
  fields += ("." + name + " = " + value).str();
  return *this;
}

} // namespace fsdpc
