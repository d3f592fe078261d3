#include "runtime/common/element_type.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace fsdpc::rt {
namespace {

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Boolean {
  std::uint8_t bits;
};

double toDouble(Half h) {
  const int exponent = (h.bits >> 10) & 31;
  const int mantissa = h.bits & 1023;
  const double sign = (h.bits & 0x8000) ? -1.0 : 1.0;
  if (exponent == 31)
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  return exponent ? sign * std::ldexp(1024 + mantissa, exponent - 25) : sign * std::ldexp(mantissa, -24);
}

double toDouble(BFloat16 b) { return std::bit_cast<float>(std::uint32_t{b.bits} << 16); }

Half toHalf(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value))
    return {static_cast<std::uint16_t>(sign | 0x7e00)};
  if (magnitude >= 65520.0)
    return {static_cast<std::uint16_t>(sign | 0x7c00)};
  if (magnitude < 0x1p-14) // subnormal: steps of 2^-24; rounding up to 2^-14 yields the right bits
    return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24)))};
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);                          // in [0.5, 1)
  const auto scaled = static_cast<std::uint32_t>(std::nearbyint(fraction * 2048.0)); // 1024..2048
  return {static_cast<std::uint16_t>(sign | (static_cast<std::uint32_t>(exponent + 13) * 1024 + scaled))};
}

BFloat16 toBFloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value))
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

/// Calls `f(T{})` with the C++ type of `type`.
template <class F>
auto visit(ElementType type, F f) {
  switch (type) {
  case ElementType::f64: return f(double{});
  case ElementType::f32: return f(float{});
  case ElementType::f16: return f(Half{});
  case ElementType::bf16: return f(BFloat16{});
  case ElementType::i64: return f(std::int64_t{});
  case ElementType::i32: return f(std::int32_t{});
  case ElementType::i16: return f(std::int16_t{});
  case ElementType::i8: return f(std::int8_t{});
  case ElementType::u64: return f(std::uint64_t{});
  case ElementType::u32: return f(std::uint32_t{});
  case ElementType::u16: return f(std::uint16_t{});
  case ElementType::u8: return f(std::uint8_t{});
  case ElementType::boolean: break;
  }
  return f(Boolean{});
}

template <class T>
constexpr bool isFloatType = std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// False if the value does not fit.
template <class From, class To>
bool convertOne(From from, To &to) {
  if constexpr (std::is_same_v<To, Boolean>) {
    if constexpr (std::is_same_v<From, Boolean>)
      to = {static_cast<std::uint8_t>(from.bits != 0)};
    else
      return false;
  } else if constexpr (std::is_same_v<From, Boolean>) {
    return convertOne(static_cast<std::uint8_t>(from.bits != 0), to);
  } else if constexpr (isFloatType<To>) {
    double value = 0;
    if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>)
      value = toDouble(from);
    else
      value = static_cast<double>(from);
    if constexpr (std::is_same_v<To, Half>)
      to = toHalf(value);
    else if constexpr (std::is_same_v<To, BFloat16>)
      to = toBFloat16(static_cast<float>(value));
    else
      to = static_cast<To>(value);
  } else if constexpr (std::is_integral_v<From>) {
    if (!std::in_range<To>(from))
      return false;
    to = static_cast<To>(from);
  } else {
    return false;
  }
  return true;
}

} // namespace

std::int64_t byteSize(ElementType type) {
  return visit(type, [](auto tag) { return static_cast<std::int64_t>(sizeof tag); });
}

static constexpr const char *names[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16",
                                        "I8",  "U64", "U32", "U16",  "U8",  "BOOL"};

const char *safetensorsName(ElementType type) { return names[static_cast<int>(type)]; }

std::optional<ElementType> elementTypeFromSafetensors(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(names)); ++i)
    if (name == names[i])
      return static_cast<ElementType>(i);
  return std::nullopt;
}

ElementType elementType(DType dtype) {
  switch (dtype) {
  case DType::f64: return ElementType::f64;
  case DType::f32: return ElementType::f32;
  case DType::bf16: return ElementType::bf16;
  case DType::f16: return ElementType::f16;
  case DType::i64: return ElementType::i64;
  case DType::i32: return ElementType::i32;
  case DType::u8: return ElementType::u8;
  case DType::boolean: break;
  }
  return ElementType::boolean;
}

bool isFloat(ElementType type) {
  return visit(type, [](auto tag) { return isFloatType<decltype(tag)>; });
}

std::optional<DType> dtypeOf(ElementType type) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean})
    if (elementType(dtype) == type)
      return dtype;
  return std::nullopt;
}

bool isConvertible(ElementType from, DType to) {
  if (to == DType::boolean)
    return from == ElementType::boolean;
  return isFloat(to) || !isFloat(from);
}

std::int64_t convertElements(ElementType from, const std::byte *source, DType to, std::byte *destination,
                             std::int64_t elements) {
  if (from == elementType(to)) {
    std::memcpy(destination, source, static_cast<std::size_t>(elements * byteSize(to)));
    return -1;
  }
  return visit(from, [&](auto fromTag) {
    return visit(elementType(to), [&](auto toTag) -> std::int64_t {
      for (std::int64_t i = 0; i < elements; ++i) {
        auto value = fromTag;
        auto result = toTag;
        std::memcpy(&value, source + i * static_cast<std::int64_t>(sizeof value), sizeof value);
        if (!convertOne(value, result))
          return i;
        std::memcpy(destination + i * static_cast<std::int64_t>(sizeof result), &result, sizeof result);
      }
      return -1;
    });
  });
}

std::int64_t loadInteger(DType dtype, const std::byte *data, std::int64_t index) {
  std::int64_t value = 0;
  convertElements(elementType(dtype), data + index * byteSize(dtype), DType::i64, reinterpret_cast<std::byte *>(&value),
                  1);
  return value;
}

double loadFloat(DType dtype, const std::byte *data, std::int64_t index) {
  double value = 0;
  convertElements(elementType(dtype), data + index * byteSize(dtype), DType::f64, reinterpret_cast<std::byte *>(&value),
                  1);
  return value;
}

void fillElements(DType dtype, std::byte *data, std::int64_t elements, double value) {
  std::byte element[8] = {};
  const auto size = static_cast<std::size_t>(byteSize(dtype));
  if (isFloat(dtype)) {
    convertElements(ElementType::f64, reinterpret_cast<const std::byte *>(&value), dtype, element, 1);
  } else {
    const auto integer = static_cast<std::int64_t>(value);
    const ElementType from = dtype == DType::boolean ? ElementType::boolean : ElementType::i64;
    convertElements(from, reinterpret_cast<const std::byte *>(&integer), dtype, element, 1);
  }
  for (std::int64_t i = 0; i < elements; ++i)
    std::memcpy(data + i * static_cast<std::int64_t>(size), element, size);
}

} // namespace fsdpc::rt
