// Sums of the updates that have the same index, by one block per index, in the order of the indices: without atomics
// and without scratch. Shared by scatterAdd and scatterRows.
#pragma once

#include "runtime/cuda/kernels/block.h"
#include "runtime/cuda/kernels/index_position.h"
#include "runtime/cuda/kernels/scalar.h"

namespace fsdpc::rt::update_sums {

inline constexpr int threads = 256, lanes = 32, warps = threads / lanes;
inline constexpr int columnsOfThread = 4; ///< independent loads
inline constexpr int columnsOfBlock = threads * columnsOfThread;

__device__ inline int countBits(unsigned word) {
#if defined(__CUDACC__)
  return __popc(word);
#else
  return __builtin_popcount(word);
#endif
}

/// The type of sums. Unsigned integers wrap.
template <class T>
struct SumOf {
  using Type = T;
};
template <class T>
  requires isHalf<T>
struct SumOf<T> {
  using Type = float;
};
template <>
struct SumOf<std::int64_t> {
  using Type = std::uint64_t;
};
template <>
struct SumOf<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct SumOf<std::uint8_t> {
  using Type = std::uint32_t;
};

/// The type in which partial sums are accumulated.
template <class Sum>
struct AccumulatorOf {
  using Type = std::conditional_t<std::is_floating_point_v<Sum>, double, Sum>;
};

/// Whether `mine` is true in any thread of the block.
__device__ inline bool anyOfBlock(bool mine) {
  __shared__ unsigned votes[warps];
  const unsigned vote = __ballot_sync(0xffffffffu, mine);
  __syncthreads(); // the previous call's votes may still be read
  if (threadIdx.x % lanes == 0)
    votes[threadIdx.x / lanes] = vote;
  __syncthreads();
  unsigned any = 0;
  for (int warp = 0; warp < warps; ++warp)
    any |= votes[warp];
  return any != 0;
}

/// The indices as rows of x.
template <class Index>
struct Rows {
  const Index *indices;
  std::int64_t count, size;
  std::int64_t outside; ///< the row that stands for an index outside the axis: 0 for float types, else none
  IndexFaults faults;

  __device__ std::int64_t at(std::int64_t i) const {
    const std::int64_t position = positionOf(indices[i], size);
    return position < 0 ? outside : position;
  }
  __device__ bool isOutside(std::int64_t i) const { return positionOf(indices[i], size) < 0; }

  /// Whether a position in [begin, end) has this row.
  __device__ bool contain(std::int64_t row, std::int64_t begin, std::int64_t end) const {
    bool found = false;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += threads)
      found |= at(i) == row;
    return anyOfBlock(found);
  }
  __device__ bool containOutside() const {
    bool found = false;
    for (std::int64_t i = threadIdx.x; i < count; i += threads)
      found |= isOutside(i);
    return anyOfBlock(found);
  }
  /// Collects which of the positions begin + [0, threads) before `end` have this row, ascending. Returns their number.
  __device__ int collect(std::int64_t row, std::int64_t begin, std::int64_t end, int *found) const;
};

template <class Index>
__device__ int Rows<Index>::collect(std::int64_t row, std::int64_t begin, std::int64_t end, int *found) const {
  __shared__ unsigned votes[warps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % lanes;
  const std::int64_t i = begin + thread;
  const bool mine = i < end && at(i) == row;
  const unsigned vote = __ballot_sync(0xffffffffu, mine);
  __syncthreads(); // the previous call's votes and `found` may still be read
  if (lane == 0)
    votes[thread / lanes] = vote;
  __syncthreads();
  int before = 0, total = 0;
  for (int warp = 0; warp < warps; ++warp) {
    before += warp < thread / lanes ? countBits(votes[warp]) : 0;
    total += countBits(votes[warp]);
  }
  if (mine)
    found[before + countBits(vote & ((1u << lane) - 1))] = thread;
  __syncthreads();
  return total;
}

/// Adds the updates of `row`, in order, from position `first` to before `end`. Column k of this thread starts at
/// updates[from[k]].
template <class Sum, class Update, class Index>
__device__ void addUpdates(const Rows<Index> &rows, std::int64_t row, std::int64_t first, std::int64_t end,
                           std::int64_t inner, const Update *updates, const std::int64_t (&from)[columnsOfThread],
                           typename AccumulatorOf<Sum>::Type (&sums)[columnsOfThread]) {
  __shared__ int found[threads];
  for (std::int64_t begin = first; begin < end; begin += threads) {
    const int count = rows.collect(row, begin, end, found);
    for (int run = 0; run < count; run += floatTerms) {
      Sum runs[columnsOfThread] = {};
      for (int i = run; i < count && i < run + floatTerms; ++i)
        for (int k = 0; k < columnsOfThread; ++k)
          runs[k] += static_cast<Sum>(updates[from[k] + (begin + found[i]) * inner]);
      for (int k = 0; k < columnsOfThread; ++k)
        sums[k] += static_cast<typename AccumulatorOf<Sum>::Type>(runs[k]);
    }
  }
  if constexpr (std::is_floating_point_v<Sum>)
    if (row == rows.outside && rows.containOutside())
      for (auto &sum : sums)
        sum = scalar::notANumber;
}

} // namespace fsdpc::rt::update_sums
