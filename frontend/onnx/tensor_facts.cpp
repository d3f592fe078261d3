#include "frontend/onnx/tensor_facts.h"

#include <cassert>
#include <cstring>
#include <type_traits>

namespace fsdpc {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t golden = 0x9e3779b97f4a7c15; ///< 2^64 divided by the golden ratio, odd

template <class Element>
Element elementAt(const uint8_t *run, int64_t at) {
  Element element;
  std::memcpy(&element, run + at * static_cast<int64_t>(sizeof element), sizeof element);
  return element;
}

/// One to one, and 0 for 0, so that zeros add nothing to a digest.
uint64_t mixed(uint64_t bits) {
  bits *= golden;
  bits ^= bits >> 32;
  bits *= 0xd6e8feb86659fd93;
  return bits ^ bits >> 32;
}

/// Position p has the key number p of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014). `step` is (p + 1) * golden.
uint64_t keyOf(uint64_t step) {
  step = (step ^ step >> 30) * 0xbf58476d1ce4e5b9;
  step = (step ^ step >> 27) * 0x94d049bb133111eb;
  return step ^ step >> 31;
}

void add(ElementDigest &digest, Wide sum) {
  sum += Wide(digest.high) << 64 | digest.low;
  digest.low = static_cast<uint64_t>(sum);
  digest.high = static_cast<uint64_t>(sum >> 64);
}

/// A digest is the sum of mixed(element) * key(position) modulo 2^128.
template <class Bits>
void digestVector(TensorFacts &facts, const uint8_t *run, int64_t many) {
  Wide sum = 0;
  uint64_t step = static_cast<uint64_t>(facts.known) * golden;
  for (int64_t i = 0; i < many; ++i)
    sum += Wide(mixed(elementAt<Bits>(run, i))) * keyOf(step += golden);
  add(facts.digest, sum);
}

/// The same for a matrix, and with the positions that its elements have in the transpose.
template <class Bits>
void digestMatrix(TensorFacts &facts, const uint8_t *run, int64_t many) {
  const int64_t columns = facts.elements / facts.rows;
  const uint64_t nextColumn = static_cast<uint64_t>(facts.rows) * golden;
  int64_t row = facts.known / columns, column = facts.known % columns;
  Wide sum = 0, transposed = 0;
  uint64_t step = static_cast<uint64_t>(facts.known) * golden;
  for (int64_t i = 0; i < many; ++row, column = 0) {
    uint64_t across = static_cast<uint64_t>(column * facts.rows + row + 1) * golden;
    for (; column < columns && i < many; ++column, ++i, across += nextColumn) {
      const uint64_t element = mixed(elementAt<Bits>(run, i));
      sum += Wide(element) * keyOf(step += golden);
      transposed += Wide(element) * keyOf(across);
    }
  }
  add(facts.digest, sum);
  add(facts.digestOfTranspose, transposed);
}

/// True for an additive or logical mask's element.
bool isOfMask(double value) { return value == 0 || value == 1 || value <= -1e3; }

template <class Element, class Bits>
Element fromBits(uint64_t bits) {
  const Bits own = static_cast<Bits>(bits);
  Element element;
  std::memcpy(&element, &own, sizeof element);
  return element;
}

/// Updates the flags of floats. Stops as soon as all are decided.
template <class Element, class Bits>
void lookAtFloats(TensorFacts &facts, const uint8_t *run, int64_t many) {
  const Element first = fromBits<Element, Bits>(facts.first);
  Element before = fromBits<Element, Bits>(facts.last);
  for (int64_t i = 0; i < many && (facts.isMask || facts.ascends || facts.descends); ++i) {
    const auto value = elementAt<Element>(run, i);
    facts.isMask = facts.isMask && isOfMask(value);
    facts.varies = facts.varies || value != first;
    facts.ascends = facts.ascends && !(value < before);
    facts.descends = facts.descends && !(value > before);
    before = value;
  }
}

template <class Element, class Bits>
void appendAs(TensorFacts &facts, const uint8_t *run, int64_t many) {
  if (facts.known == 0)
    facts.first = facts.last = elementAt<Bits>(run, 0);
  // All elements equal their neighbour, and the first of the run that of the tensor.
  facts.isUniform = facts.isUniform && elementAt<Bits>(run, 0) == facts.first &&
                    std::memcmp(run, run + sizeof(Bits), static_cast<size_t>(many - 1) * sizeof(Bits)) == 0;
  if constexpr (std::is_floating_point_v<Element>)
    lookAtFloats<Element, Bits>(facts, run, many);
  facts.rows > 0 ? digestMatrix<Bits>(facts, run, many) : digestVector<Bits>(facts, run, many);
  facts.last = elementAt<Bits>(run, many - 1);
  facts.known += many;
}

} // namespace

TensorFacts::TensorFacts(DType dtype, int64_t elements, int64_t rows) : dtype(dtype), elements(elements), rows(rows) {
  assert(!isHalf(dtype) && "elements are converted");
  isMask = ascends = descends = isFloat(dtype);
}

void TensorFacts::append(const uint8_t *run, int64_t many) {
  assert(many > 0 && many <= elements - known && "more elements than the tensor has");
  switch (dtype) {
  case DType::f64: return appendAs<double, uint64_t>(*this, run, many);
  case DType::f32: return appendAs<float, uint32_t>(*this, run, many);
  case DType::i64: return appendAs<uint64_t, uint64_t>(*this, run, many);
  case DType::i32: return appendAs<uint32_t, uint32_t>(*this, run, many);
  default: return appendAs<uint8_t, uint8_t>(*this, run, many);
  }
}

void TensorFacts::appendZeros(int64_t many) {
  const int64_t before = known;
  const uint64_t zero = 0;
  append(reinterpret_cast<const uint8_t *>(&zero), 1);
  known = before + many;
}

} // namespace fsdpc
