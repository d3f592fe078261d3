// Element types of files, and their conversion to the types of a program.
//
// Conversions that keep the intended value are allowed (i32 -> i64, f64 -> f32 by rounding, u8 -> f32). A float never
// becomes an integer, and an integer that does not fit its destination is an error.
#pragma once

#include "runtime/common/program.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fsdpc::rt {

enum class ElementType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

std::int64_t byteSize(ElementType type);
/// The name in safetensors files: "F32", "I64", "BOOL" ...
const char *safetensorsName(ElementType type);
std::optional<ElementType> elementTypeFromSafetensors(std::string_view name);
ElementType elementType(DType dtype);
/// nullopt: programs have no such type.
std::optional<DType> dtypeOf(ElementType type);

/// Whether elements of type `from` can be converted to `to`.
bool isConvertible(ElementType from, DType to);

/// Converts `elements` elements; equal types are copied. Returns the index of the first element that does not fit `to`,
/// or -1. Neither pointer needs alignment.
std::int64_t convertElements(ElementType from, const std::byte *source, DType to, std::byte *destination,
                             std::int64_t elements);

/// Returns element `index` of an integer or boolean array.
std::int64_t loadInteger(DType dtype, const std::byte *data, std::int64_t index);
/// Returns element `index` of a floating-point array.
double loadFloat(DType dtype, const std::byte *data, std::int64_t index);
/// Sets every element, rounding `value` to the type.
void fillElements(DType dtype, std::byte *data, std::int64_t elements, double value);

bool isFloat(ElementType type);
inline bool isFloat(DType dtype) { return isFloat(elementType(dtype)); }

} // namespace fsdpc::rt
