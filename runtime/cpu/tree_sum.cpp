#include "runtime/cpu/tree_sum.h"

#include "runtime/common/bfloat16.h"
#include "runtime/common/failure.h"
#include "runtime/common/float16.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

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
      storeRounded(out[first + i], sum[i]);
  }
}

/// What is added of elements of type T, and how.
template <class T>
struct Terms {
  using Partial = T;
  static void sum(const std::byte *const *sources, int count, std::int64_t first, std::int64_t n, T *out) {
    sumBlock(sources, count, first, n, out);
  }
};
template <class Half>
struct HalfTerms {
  using Partial = float;
  static void sum(const std::byte *const *sources, int count, std::int64_t first, std::int64_t n, float *out) {
    sumHalfBlock<Half>(sources, count, first, n, out);
  }
};
template <>
struct Terms<Bfloat16> : HalfTerms<Bfloat16> {};
template <>
struct Terms<Float16> : HalfTerms<Float16> {};

/// Adds elements [first, first + n) of the parts, which are the leaves below one node of the tree, to a partial sum.
template <class T, class Partial = typename Terms<T>::Partial>
void sumBelow(std::span<const SumPart> parts, std::int64_t first, std::int64_t n, Partial *out) {
  const SumPart &leaf = parts.front();
  if (parts.size() == 1 && leaf.operands)
    return Terms<T>::sum(leaf.operands, leaf.members.count, first, n, out);
  if (parts.size() == 1) {
    std::memcpy(out, at<Partial>(leaf.partial, first), n * sizeof(Partial));
    return;
  }
  const int begin = leaf.members.first, end = parts.back().members.first + parts.back().members.count;
  const int middle = begin + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
  const auto right =
      std::partition_point(parts.begin(), parts.end(), [&](const SumPart &p) { return p.members.first < middle; });
  const auto onTheLeft = static_cast<std::size_t>(right - parts.begin());
  alignas(64) Partial rightSum[blockElements];
  sumBelow<T>(parts.first(onTheLeft), first, n, out);
  sumBelow<T>(parts.subspan(onTheLeft), first, n, rightSum);
  add2(out, rightSum, out, n);
}

template <class T>
void sumAllParts(std::span<const SumPart> parts, void *destination, std::int64_t elements) {
  T *out = static_cast<T *>(destination);
  alignas(64) typename Terms<T>::Partial sum[blockElements];
  for (std::int64_t first = 0; first < elements; first += blockElements) {
    const std::int64_t n = std::min(blockElements, elements - first);
    sumBelow<T>(parts, first, n, sum);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      if constexpr (isHalf<T>)
        storeRounded(out[first + i], sum[i]);
      else
        out[first + i] = T(sum[i]);
  }
}

template <class T>
void sumToPartial(const std::byte *const *sources, int count, std::byte *partial, std::int64_t elements) {
  auto *out = reinterpret_cast<typename Terms<T>::Partial *>(partial);
  for (std::int64_t first = 0; first < elements; first += blockElements)
    Terms<T>::sum(sources, count, first, std::min(blockElements, elements - first), out + first);
}

/// Calls `use` with a value of the type that is added. Unsigned sums have the same bits as signed ones, and their
/// overflow is defined.
template <class Use>
void withTypeOf(DType dtype, Use use) {
  switch (dtype) {
  case DType::f64: return use(double{});
  case DType::f32: return use(float{});
  case DType::bf16: return use(Bfloat16{});
  case DType::f16: return use(Float16{});
  case DType::i64: return use(std::uint64_t{});
  case DType::i32: return use(std::uint32_t{});
  default: throw Failure(ExitCode::internal, "a collective sums a type that has no sum over ranks");
  }
}

void addSubtrees(const std::vector<bool> &chosen, Subtree range, std::vector<Subtree> &found) {
  const auto begin = chosen.begin() + range.first;
  const auto members = std::count(begin, begin + range.count, true);
  if (members == range.count)
    found.push_back(range);
  if (members == 0 || members == range.count)
    return;
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(range.count - 1)));
  addSubtrees(chosen, {range.first, left}, found);
  addSubtrees(chosen, {range.first + left, range.count - left}, found);
}

} // namespace

void treeSum(const std::byte *const *sources, int count, void *destination, std::int64_t elements, DType dtype) {
  withTypeOf(dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<typename Terms<T>::Partial, T>)
      sumAll<T>(sources, count, destination, elements);
    else
      sumHalves<T>(sources, count, destination, elements);
  });
}

std::vector<Subtree> subtreesOf(const std::vector<bool> &chosen) {
  std::vector<Subtree> found;
  addSubtrees(chosen, {0, static_cast<int>(chosen.size())}, found);
  return found;
}

int partialByteSize(DType dtype) {
  return static_cast<int>(dtype == DType::bf16 || dtype == DType::f16 ? sizeof(float) : byteSize(dtype));
}

void sumSubtree(const std::byte *const *sources, int count, std::byte *partial, std::int64_t elements, DType dtype) {
  withTypeOf(dtype, [&]<class T>(T) { sumToPartial<T>(sources, count, partial, elements); });
}

void sumParts(std::span<const SumPart> parts, void *destination, std::int64_t elements, DType dtype) {
  withTypeOf(dtype, [&]<class T>(T) { sumAllParts<T>(parts, destination, elements); });
}

} // namespace fsdpc::rt
