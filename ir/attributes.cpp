#include "ir/attributes.h"

#include "ir/op.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/xxhash.h"
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace fsdpc {

namespace {

// bf16 and f16 constants are kept as their bit patterns; only these two conversions touch them.
double halfToDouble(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  double fraction = bits & 1023;
  double magnitude = exponent == 31  ? (fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                                                      : std::numeric_limits<double>::infinity())
                     : exponent == 0 ? std::ldexp(fraction, -24)
                                     : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

uint16_t doubleToHalf(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  if (std::isnan(value))
    return 0x7e00;
  if (magnitude >= 65520)
    return sign | 0x7c00;
  if (magnitude < std::ldexp(1, -14))
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  int exponent = std::ilogb(magnitude);
  // A fraction that rounds up to 2048 carries into the exponent by plain addition.
  int fraction = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent))) - 1024;
  return static_cast<uint16_t>(sign | (((exponent + 15) << 10) + fraction));
}

uint16_t doubleToBfloat(double value) {
  float single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  if (std::isnan(single))
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

double bfloatToDouble(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float single;
  std::memcpy(&single, &wide, sizeof single);
  return single;
}

template <class Integer>
Integer saturate(double value) {
  if (std::isnan(value))
    return 0;
  // The upper limit of i64 is not a double: its successor 2^63 is.
  if (value >= -static_cast<double>(std::numeric_limits<Integer>::min()) && std::numeric_limits<Integer>::min() != 0)
    return std::numeric_limits<Integer>::max();
  if (value <= static_cast<double>(std::numeric_limits<Integer>::min()))
    return std::numeric_limits<Integer>::min();
  if (value >= static_cast<double>(std::numeric_limits<Integer>::max()))
    return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(value);
}

template <class T>
void store(uint8_t *to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T load(const uint8_t *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void storeElement(DType dtype, uint8_t *to, double value) {
  switch (dtype) {
  case DType::f64: return store(to, value);
  case DType::f32: return store(to, static_cast<float>(value));
  case DType::bf16: return store(to, doubleToBfloat(value));
  case DType::f16: return store(to, doubleToHalf(value));
  case DType::i64: return store(to, saturate<int64_t>(value));
  case DType::i32: return store(to, saturate<int32_t>(value));
  case DType::u8: return store(to, saturate<uint8_t>(value));
  case DType::boolean: return store<uint8_t>(to, value != 0);
  }
}

double loadElement(DType dtype, const uint8_t *from) {
  switch (dtype) {
  case DType::f64: return load<double>(from);
  case DType::f32: return load<float>(from);
  case DType::bf16: return bfloatToDouble(load<uint16_t>(from));
  case DType::f16: return halfToDouble(load<uint16_t>(from));
  case DType::i64: return static_cast<double>(load<int64_t>(from));
  case DType::i32: return load<int32_t>(from);
  case DType::u8:
  case DType::boolean: return *from;
  }
  return 0;
}

} // namespace

double roundedTo(DType dtype, double value) {
  if (dtype == DType::bf16)
    return bfloatToDouble(doubleToBfloat(value));
  return dtype == DType::f16 ? halfToDouble(doubleToHalf(value)) : value;
}

Dense::Dense(DType dtype, std::vector<uint8_t> bytes)
    : elementType(dtype), storage(std::make_shared<const std::vector<uint8_t>>(std::move(bytes))) {
  assert(storage->size() % byteSize(dtype) == 0 && "a constant holds whole elements");
}

Dense Dense::splat(DType dtype, double value) {
  Dense dense = fromDoubles(dtype, {value});
  dense.splatForm = true;
  return dense;
}

Dense Dense::fromDoubles(DType dtype, llvm::ArrayRef<double> values) {
  int64_t width = byteSize(dtype);
  std::vector<uint8_t> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i)
    storeElement(dtype, bytes.data() + i * width, values[i]);
  return Dense(dtype, std::move(bytes));
}

int64_t Dense::storedElements() const { return static_cast<int64_t>(bytes().size()) / byteSize(elementType); }

double Dense::at(int64_t index) const {
  return loadElement(elementType, bytes().data() + (splatForm ? 0 : index) * byteSize(elementType));
}

int64_t Dense::integerAt(int64_t index) const {
  if (elementType == DType::i64)
    return load<int64_t>(bytes().data() + (splatForm ? 0 : index) * 8);
  return saturate<int64_t>(at(index));
}

bool operator==(const Dense &a, const Dense &b) {
  return a.elementType == b.elementType && a.splatForm == b.splatForm &&
         (a.storage == b.storage || a.bytes() == b.bytes());
}

std::string doubleText(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value > 0 ? "inf" : "-inf";
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  assert(error == std::errc() && "the buffer holds any double");
  return std::string(buffer, end);
}

std::string symbolText(char sigil, llvm::StringRef name) {
  bool plain =
      !name.empty() && llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$'; });
  std::string text(1, sigil);
  if (plain)
    return text += name;
  llvm::raw_string_ostream out(text);
  out << '"';
  llvm::printEscapedString(name, out);
  out << '"';
  return text;
}

namespace {

// Larger constants appear in texts as a digest. Texts are compared and never read back.
constexpr size_t maxBytesInText = 64;

class TextVisitor : public AttributeVisitor {
public:
  std::vector<std::pair<std::string, std::string>> fields;

  void field(llvm::StringRef name, int64_t &value) override { put(name, llvm::itostr(value)); }
  void field(llvm::StringRef name, double &value) override { put(name, doubleText(value)); }
  void field(llvm::StringRef name, bool &value) override { put(name, value ? "true" : "false"); }
  void field(llvm::StringRef name, std::string &value) override { put(name, value); }
  void field(llvm::StringRef name, DType &value) override { put(name, nameOf(value).str()); }
  void field(llvm::StringRef name, Symbol &value) override { put(name, symbolText('@', value.name)); }
  void field(llvm::StringRef name, Shape &value) override { put(name, joined(value)); }
  void field(llvm::StringRef name, std::vector<std::string> &value) override { put(name, llvm::join(value, "\n")); }
  void field(llvm::StringRef name, Dense &value) override {
    std::string text = nameOf(value.dtype()).str() + (value.isSplat() ? " splat " : " ");
    if (value.bytes().size() > maxBytesInText)
      text += std::to_string(value.bytes().size()) + " bytes " + llvm::toHex(llvm::BLAKE3::hash(value.bytes()));
    else
      text += llvm::toHex(value.bytes());
    put(name, std::move(text));
  }
  void field(llvm::StringRef name, Expression &value) override {
    std::string text = llvm::itostr(value.operandCount);
    for (const Expression::Step &step : value.steps)
      text += ";" + infoOf(step.op).name.str() + ":" + nameOf(step.dtype).str() + "(" + joined(step.arguments) + ")(" +
              joined(step.immediates) + ")" + doubleText(step.literal);
    put(name, text + ";yield " + joined(value.yields));
  }

protected:
  void put(llvm::StringRef name, std::string text) { fields.emplace_back(name.str(), std::move(text)); }

private:
  template <class Range>
  static std::string joined(const Range &range) {
    std::string text;
    for (auto value : range)
      text += (text.empty() ? "" : ",") + llvm::itostr(value);
    return text;
  }
};

/// Keeps constants separate from the texts, so that constants with shared bytes compare without reading them.
class ComparisonVisitor final : public TextVisitor {
public:
  explicit ComparisonVisitor(const AttributesBase &attributes) {
    const_cast<AttributesBase &>(attributes).visit(*this);
  }
  using TextVisitor::field;
  void field(llvm::StringRef, Dense &value) override { constants.push_back(value); }
  std::vector<Dense> constants;
};

std::vector<std::pair<std::string, std::string>> allTexts(const AttributesBase *attributes) {
  TextVisitor visitor;
  // fields() takes a mutable reference because the reader needs one. This visitor does not modify the struct.
  const_cast<AttributesBase *>(attributes)->visit(visitor);
  return std::move(visitor.fields);
}

} // namespace

std::vector<std::pair<std::string, std::string>> attributeTexts(const AttributesBase *attributes) {
  if (!attributes)
    return {};
  std::vector<std::pair<std::string, std::string>> texts = allTexts(attributes);
  std::vector<std::pair<std::string, std::string>> defaults = allTexts(attributes->makeDefault().get());
  size_t kept = 0;
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i] != defaults[i])
      texts[kept++] = std::move(texts[i]);
  texts.resize(kept);
  return texts;
}

bool equalAttributes(const AttributesBase *a, const AttributesBase *b) {
  if (!a || !b)
    return a == b;
  if (a->typeId() != b->typeId())
    return false;
  const ComparisonVisitor left(*a), right(*b);
  return left.fields == right.fields && left.constants == right.constants;
}

llvm::hash_code hashAttributes(const AttributesBase *attributes) {
  llvm::hash_code hash = 0;
  if (!attributes)
    return hash;
  const ComparisonVisitor visitor(*attributes);
  for (const auto &[name, text] : visitor.fields)
    hash = llvm::hash_combine(hash, text);
  for (const Dense &constant : visitor.constants)
    hash = llvm::hash_combine(hash, static_cast<int>(constant.dtype()), constant.isSplat(),
                              llvm::xxh3_64bits(constant.bytes()));
  return hash;
}

} // namespace fsdpc
