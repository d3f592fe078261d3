#include "runtime/cpu/tree_sum.h"

#include "runtime/common/bfloat16.h"
#include "runtime/common/failure.h"
#include "runtime/common/float16.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fsdpc::rt {
namespace {

/// Chosen so that a block of every source and the sum fit in the first-level cache for up to eight ranks.
constexpr std::int64_t blockElements = 512;

template <class T>
const T *at(const std::byte *source, std::int64_t first) {
  return reinterpret_cast<const T *>(source) + first;
}

// The destination may be one of the sources. Indices are equal, so element-wise loops stay correct. But the pointers
// may alias, so the compiler must be told that iterations are independent.
template <class T>
void add2(const T *a, const T *b, T *out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = a[i] + b[i];
}

template <class T>
void add3(const T *a, const T *b, const T *c, T *out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = (a[i] + b[i]) + c[i];
}

template <class T>
void add4(const T *a, const T *b, const T *c, const T *d, T *out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

template <class T>
void sumBlock(const std::byte *const *sources, int count, std::int64_t first, std::int64_t n, T *out) {
  switch (count) {
  case 1: std::memmove(out, at<T>(sources[0], first), n * sizeof(T)); return;
  case 2: return add2(at<T>(sources[0], first), at<T>(sources[1], first), out, n);
  case 3: return add3(at<T>(sources[0], first), at<T>(sources[1], first), at<T>(sources[2], first), out, n);
  case 4:
    return add4(at<T>(sources[0], first), at<T>(sources[1], first), at<T>(sources[2], first), at<T>(sources[3], first),
                out, n);
  }
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
  alignas(64) T leftSum[blockElements];
  alignas(64) T rightSum[blockElements];
  sumBlock(sources, left, first, n, leftSum);
  sumBlock(sources + left, count - left, first, n, rightSum);
  add2(leftSum, rightSum, out, n);
}

template <class T>
void sumAll(const std::byte *const *sources, int count, void *destination, std::int64_t elements) {
  T *out = static_cast<T *>(destination);
  // Few sources need no partial sums, and so no blocks.
  const std::int64_t step = count <= 4 ? elements : blockElements;
  for (std::int64_t first = 0; first < elements; first += step)
    sumBlock(sources, count, first, std::min(step, elements - first), out + first);
}

/// Sums a block in float.
template <class Half>
void sumHalfBlock(const std::byte *const *sources, int count, std::int64_t first, std::int64_t n, float *out) {
  if (count == 1) {
    const Half *from = at<Half>(sources[0], first);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = static_cast<float>(from[i]);
    return;
  }
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
  alignas(64) float rightSum[blockElements];
  sumHalfBlock<Half>(sources, left, first, n, out);
  sumHalfBlock<Half>(sources + left, count - left, first, n, rightSum);
  add2(out, rightSum, out, n);
}

template <class Half>
void sumHalves(const std::byte *const *sources, int count, void *destination, std::int64_t elements) {
  Half *out = static_cast<Half *>(destination);
  alignas(64) float sum[blockElements];
  for (std::int64_t first = 0; first < elements; first += blockElements) {
    const std::int64_t n = std::min(blockElements, elements - first);
    sumHalfBlock<Half>(sources, count, first, n, sum);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      out[first + i] = Half(sum[i]);
  }
}

} // namespace

void treeSum(const std::byte *const *sources, int count, void *destination, std::int64_t elements, DType dtype) {
  switch (dtype) {
  case DType::f64: return sumAll<double>(sources, count, destination, elements);
  case DType::f32: return sumAll<float>(sources, count, destination, elements);
  case DType::bf16: return sumHalves<Bfloat16>(sources, count, destination, elements);
  case DType::f16: return sumHalves<Float16>(sources, count, destination, elements);
  // Unsigned sums have the same bits, and their overflow is defined.
  case DType::i64: return sumAll<std::uint64_t>(sources, count, destination, elements);
  case DType::i32: return sumAll<std::uint32_t>(sources, count, destination, elements);
  default: throw Failure(ExitCode::internal, "a collective sums a type that has no sum over ranks");
  }
}

} // namespace fsdpc::rt
