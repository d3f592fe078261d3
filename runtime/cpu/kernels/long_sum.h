// Long sums of f32 terms: adds eight terms at a time in f32, as a balanced tree, and accumulates the results in f64.
//
// The order depends on the number of terms only. With u = 2^-24, the error of the sum of n terms is at most 3 u * sum
// |term| from the tree and n / 128 * 2^-53 * sum |term| from f64, which is below u up to 2^36 terms: in total 4 u * sum
// |term|, and u of the result if it is rounded to f32. Up to 128 terms are summed in f32 in as many lanes as the
// machine has: (n / lanes + log2(lanes)) u * sum |term|, which is 19 u * sum |term| with eight lanes.
#pragma once

#include "runtime/cpu/kernels/vector_math.h"

#include <algorithm>
#include <cstdint>

namespace fsdpc::rt {

/// The number of f32 rows that are added before they are added to an f64 sum.
inline constexpr std::int64_t treeRows = 8;

/// term(0) + ... + term(7), as a tree. `add` defaults to +.
template <class Term, class Add>
[[gnu::always_inline]] inline auto treeOf(Term term, Add add) {
  return add(add(add(term(0), term(1)), add(term(2), term(3))), add(add(term(4), term(5)), add(term(6), term(7))));
}
template <class Term>
[[gnu::always_inline]] inline auto treeOf(Term term) {
  return treeOf(term, [](auto a, auto b) { return a + b; });
}

/// A sum to which ranges of terms are added.
class LongSum {
public:
  /// Adds term(i) for i in [begin, end). A range whose length is a multiple of 128 leaves no terms to be added one by
  /// one.
  template <class Term>
  [[gnu::always_inline]] void add(std::int64_t begin, std::int64_t end, Term term) {
    std::int64_t i = begin;
    for (; i + lanes * treeRows <= end; i += lanes * treeRows)
#pragma omp simd
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        totals[lane] += static_cast<double>(treeOf([&](std::int64_t row) { return term(i + row * lanes + lane); }));
    for (; i + lanes <= end; i += lanes)
#pragma omp simd
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        totals[lane] += static_cast<double>(term(i + lane));
    for (std::int64_t lane = 0; i + lane < end; ++lane)
      totals[lane] += static_cast<double>(term(i + lane));
  }
  double total() const {
    double sums[lanes / 2];
    for (std::int64_t i = 0; i < lanes / 2; ++i)
      sums[i] = totals[i] + totals[i + lanes / 2];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }

  /// The same for two sums in one loop.
  template <class First, class Second>
  [[gnu::always_inline]] static void addBoth(LongSum &a, LongSum &b, std::int64_t begin, std::int64_t end, First first,
                                             Second second) {
    std::int64_t i = begin;
    for (; i + lanes * treeRows <= end; i += lanes * treeRows)
#pragma omp simd
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        a.totals[lane] += static_cast<double>(treeOf([&](std::int64_t row) { return first(i + row * lanes + lane); }));
        b.totals[lane] += static_cast<double>(treeOf([&](std::int64_t row) { return second(i + row * lanes + lane); }));
      }
    a.add(i, end, first);
    b.add(i, end, second);
  }

private:
  static constexpr std::int64_t lanes = 16;
  double totals[lanes] = {};
};

/// The maximum number of terms of a sum that is computed entirely in f32.
inline constexpr std::int64_t shortSum = 128;

/// A separate function, so that short sums do not pay for its registers.
template <class Term>
[[gnu::noinline]] double longSumOf(std::int64_t count, Term term) {
  LongSum sum;
  sum.add(0, count, term);
  return sum.total();
}

template <class Term>
[[gnu::always_inline]] inline double sumOf(std::int64_t count, Term term) {
  if (count <= shortSum) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < count; ++i)
      total += term(i);
    return static_cast<double>(total);
  }
  return longSumOf(count, term);
}

/// The sum of exp(x[at(j)] - shift) for j < count. T: float or Bfloat16.
template <class T, class At>
double sumOfExponentials(const T *x, std::int64_t count, float shift, At at) {
  if (count <= shortSum)
    return sumOf(count, [=](std::int64_t j) { return scalar::exp(static_cast<float>(x[at(j)]) - shift); });
  constexpr std::int64_t block = 256; // exponentials are calls: a separate loop keeps sums in registers
  float exponentials[block];
  LongSum sum;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t length = std::min(block, count - begin);
#pragma omp simd
    for (std::int64_t j = 0; j < length; ++j)
      exponentials[j] = scalar::exp(static_cast<float>(x[at(begin + j)]) - shift);
    sum.add(0, length, [&](std::int64_t j) { return exponentials[j]; });
  }
  return sum.total();
}

} // namespace fsdpc::rt
