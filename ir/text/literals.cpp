#include "ir/text/literals.h"

#include "llvm/ADT/StringExtras.h"
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace fsdpc::text {

namespace {

constexpr int64_t maxListedElements = 16;

bool isHexadecimal(llvm::StringRef text) { return text.starts_with("0x") || text.starts_with("-0x"); }
bool sameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

double rounded(DType dtype, double value) {
  if (dtype == DType::f32)
    return static_cast<float>(value);
  return dtype == DType::f16 || dtype == DType::bf16 ? Dense::splat(dtype, value).at(0) : value;
}

/// The first candidate that reads back as the value; `value` must be representable in `dtype`.
std::string shortestDecimal(DType dtype, double value) {
  if (dtype == DType::f64 || !isFloat(dtype) || !std::isfinite(value))
    return doubleText(value);
  for (int digits = 1; digits <= 9; ++digits) {
    char buffer[40];
    auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, digits);
    llvm::StringRef text(buffer, end - buffer);
    std::optional<double> read = error == std::errc() ? parseScalar(dtype, text) : std::nullopt;
    if (read && sameBits(*read, value))
      return doubleText(*parseDouble(text));
  }
  return doubleText(value);
}

std::string hexadecimal(double value) {
  char buffer[40];
  char *end = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value), std::chars_format::hex).ptr;
  return (std::signbit(value) ? "-0x" : "0x") + std::string(buffer, end);
}

std::optional<int64_t> parseInteger(DType dtype, llvm::StringRef text) {
  if (dtype == DType::boolean)
    return text == "true" ? std::optional<int64_t>(1) : text == "false" ? std::optional<int64_t>(0) : std::nullopt;
  int64_t value;
  if (text.getAsInteger(10, value))
    return std::nullopt;
  bool fits = dtype == DType::i64 || (dtype == DType::i32 && value == static_cast<int32_t>(value)) ||
              (dtype == DType::u8 && value == static_cast<uint8_t>(value));
  return fits ? std::optional<int64_t>(value) : std::nullopt;
}

std::string elementText(const Dense &dense, int64_t index) {
  if (dense.dtype() == DType::boolean)
    return dense.integerAt(index) ? "true" : "false";
  return isInteger(dense.dtype()) ? llvm::itostr(dense.integerAt(index)) : scalarText(dense.dtype(), dense.at(index));
}

} // namespace

std::optional<double> parseDouble(llvm::StringRef text) {
  if (text == "nan")
    return std::numeric_limits<double>::quiet_NaN();
  bool negative = text.consume_front("-");
  double value;
  if (text == "inf") {
    value = std::numeric_limits<double>::infinity();
  } else {
    bool hexadecimal = text.consume_front("0x");
    // from_chars would accept a second sign and the words inf and nan.
    if (text.empty() || (!llvm::isHexDigit(text.front()) && text.front() != '.'))
      return std::nullopt;
    auto [end, error] = std::from_chars(text.begin(), text.end(), value,
                                        hexadecimal ? std::chars_format::hex : std::chars_format::general);
    if (error != std::errc() || end != text.end())
      return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<double> parseScalar(DType dtype, llvm::StringRef text) {
  std::optional<double> value = parseDouble(text);
  return !value || isHexadecimal(text) ? value : rounded(dtype, *value);
}

std::string scalarText(DType dtype, double value) {
  if (std::isnan(value))
    return "nan";
  return sameBits(rounded(dtype, value), value) ? shortestDecimal(dtype, value) : hexadecimal(value);
}

std::optional<Dense> denseFromTexts(DType dtype, llvm::ArrayRef<llvm::StringRef> texts, bool splat) {
  std::vector<double> values;
  std::vector<uint8_t> bytes;
  for (llvm::StringRef text : texts) {
    if (isFloat(dtype)) {
      std::optional<double> value = parseDouble(text);
      if (!value)
        return std::nullopt;
      values.push_back(*value);
      continue;
    }
    std::optional<int64_t> value = parseInteger(dtype, text);
    if (!value)
      return std::nullopt;
    // Little-endian, as all hosts of the compiler are: the low bytes come first.
    bytes.resize(bytes.size() + byteSize(dtype));
    std::memcpy(bytes.data() + bytes.size() - byteSize(dtype), &*value, byteSize(dtype));
    values.push_back(static_cast<double>(*value));
  }
  if (splat) {
    Dense dense = Dense::splat(dtype, values.front());
    bool exact = isFloat(dtype) || dense.bytes() == llvm::ArrayRef<uint8_t>(bytes);
    return exact ? std::optional<Dense>(dense) : std::nullopt;
  }
  return isFloat(dtype) ? Dense::fromDoubles(dtype, values) : Dense(dtype, std::move(bytes));
}

std::string denseText(const Dense &dense, ConstantStore *constants) {
  if (dense.isSplat())
    return elementText(dense, 0);
  if (dense.storedElements() <= maxListedElements) {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < dense.storedElements(); ++i)
      texts.push_back(elementText(dense, i));
    // A nan with a payload, or a bool that is neither 0 nor 1, does not survive as text.
    llvm::SmallVector<llvm::StringRef> views(texts.begin(), texts.end());
    std::optional<Dense> read = denseFromTexts(dense.dtype(), views, false);
    if (read && read->bytes() == dense.bytes())
      return "[" + llvm::join(texts, ", ") + "]";
  }
  if (constants && dense.bytes().size() > ConstantStore::maxBytesInText)
    return "stored \"" + constants->add(dense) + "\"";
  return "hex \"" + llvm::toHex(dense.bytes(), true) + "\"";
}

} // namespace fsdpc::text
