#include "runtime/common/initial_values.h"

#include "runtime/common/element_type.h"
#include "runtime/common/philox.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t blockElements = 4;    // per call of philox
constexpr std::int64_t chunkElements = 1024; // drawn per iteration
constexpr std::uint32_t counterDomain = 0x696e6974;

constexpr std::uint64_t splitmix64(std::uint64_t x) {
  std::uint64_t z = x + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text)
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

void drawNormalPair(const InitialValues &values, double u, double v, double *to) {
  const double radius = values.second * std::sqrt(-2 * std::log(u));
  to[0] = values.first + radius * std::cos(2 * std::numbers::pi * v);
  to[1] = values.first + radius * std::sin(2 * std::numbers::pi * v);
}

/// Draws elements 4 block .. 4 block + 3.
void drawBlock(const InitialValues &values, const std::uint32_t (&key)[2], std::int64_t block, double *to) {
  const PhiloxWords words =
      philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), counterDomain, 0}, key);
  double u[blockElements];
  for (std::int64_t i = 0; i < blockElements; ++i)
    u[i] = (words.word[i] + 0.5) * 0x1p-32;
  if (values.kind == InitialKind::normal) {
    drawNormalPair(values, u[0], u[1], to);
    drawNormalPair(values, u[2], u[3], to + 2);
    return;
  }
  for (std::int64_t i = 0; i < blockElements; ++i)
    to[i] = values.first + (values.second - values.first) * u[i];
}

} // namespace

void drawRange(const ParameterInfo &parameter, std::uint64_t seed, std::int64_t firstElement, std::int64_t elements,
               DType dtype, std::byte *to) {
  if (parameter.initial.kind == InitialKind::constant)
    return fillElements(dtype, to, elements, parameter.initial.first);
  const std::uint64_t key = splitmix64(splitmix64(seed) ^ fnv1a64(parameter.name));
  const std::uint32_t halves[2] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  double drawn[chunkElements + blockElements];
  std::byte own[chunkElements * sizeof(double)];
  for (std::int64_t done = 0; done < elements; done += chunkElements) {
    const std::int64_t first = firstElement + done, count = std::min(chunkElements, elements - done);
    const std::int64_t firstBlock = first / blockElements;
    for (std::int64_t block = firstBlock; block * blockElements < first + count; ++block)
      drawBlock(parameter.initial, halves, block, drawn + (block - firstBlock) * blockElements);
    const auto *source = reinterpret_cast<const std::byte *>(drawn + (first - firstBlock * blockElements));
    convertElements(ElementType::f64, source, parameter.dtype, own, count);
    convertElements(elementType(parameter.dtype), own, dtype, to + done * byteSize(dtype), count);
  }
}

} // namespace fsdpc::rt
