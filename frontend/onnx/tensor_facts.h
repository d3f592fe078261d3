// What the repairs ask about the elements of a tensor, learnt in one pass from the first element to the last.
#pragma once

#include "ir/type.h"
#include <compare>

namespace fsdpc {

/// A digest of elements and their positions, not of how they were read. Two tensors of one type and one number of
/// elements whose digests are equal are taken as equal: by chance that happens to one pair in 2^128. It does not resist
/// somebody who looks for such a pair; all that they gain is that two parameters of their own model become one.
struct ElementDigest {
  uint64_t low = 0, high = 0;
  auto operator<=>(const ElementDigest &) const = default;
};

/// Facts of the elements that were appended so far. They are facts of the tensor when isComplete(); before, a flag that
/// is false stays false.
struct TensorFacts {
  DType dtype = DType::f32; ///< of the elements after conversion: dtypeOf
  int64_t elements = 0;     ///< of the tensor
  int64_t rows = 0;         ///< of a matrix; 0 for other ranks

  int64_t known = 0;            ///< elements appended so far
  uint64_t first = 0, last = 0; ///< bits of the first and of the last of them
  bool isUniform = true;        ///< they have the same bits
  bool isMask = true;           ///< floats, each 0, 1 or at most -1000
  bool varies = false;          ///< of a mask: not all have one value
  bool ascends = true;          ///< floats, none less than the one before it
  bool descends = true;         ///< floats, none more than the one before it
  /// Of a matrix, digestOfTranspose is the digest that its transpose has. A matrix and its transpose have the same
  /// first element.
  ElementDigest digest, digestOfTranspose;

  TensorFacts() = default;
  /// dtype: not f16 or bf16, which no element has after conversion.
  TensorFacts(DType dtype, int64_t elements, int64_t rows);

  bool isComplete() const { return known == elements; }
  /// The next elements. Requires known + many <= elements and many > 0.
  void append(const uint8_t *run, int64_t many);
  /// The same for zeros, in a time that does not depend on how many there are.
  void appendZeros(int64_t many);
};

} // namespace fsdpc
