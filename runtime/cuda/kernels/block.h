// Building blocks of row-wise kernels: reductions over warps and blocks, and how the threads that share a row divide
// it.
//
// A *team* is the threads that share a row: a warp for short rows, which avoids barriers, or a block for long rows. A
// thread takes a *pack* of elements at a time. If rows consist of aligned packs, a pack is adjacent elements, in one
// load. Otherwise it is as many loads in flight, interleaved with the team's other threads so that they coalesce.
// Partial results are merged as a tree. So the order in which a row is summed depends on its length and element type,
// never on the device, the number of rows or the memory plan (an operand starts on 128 bytes, or at an offset within
// them that the program fixes).
//
// Every pass reads the rows again: a team's rows are still in the cache. Keeping them in registers would need a kernel
// per length.
#pragma once

#include "runtime/cuda/kernels/pack.h"
#include "runtime/cuda/kernels/scalar.h"
#include "runtime/cuda/launch.h"

#include <cstdint>
#include <cstring>

namespace fsdpc::rt {

inline constexpr int warpLanes = 32;
inline constexpr unsigned fullWarp = 0xffffffffu;
/// Block size of row kernels, unless a kernel states otherwise.
inline constexpr int rowThreads = 256;
/// The longest row that a warp handles, in elements.
inline constexpr std::int64_t longestWarpRow = 1024;

// ---- functors for the reductions below

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Times {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
};
/// NaN if either is.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return scalar::max(a, b);
  }
};
struct Smaller {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return scalar::min(a, b);
  }
};

// ---- sums of many floats

/// The sum of a few floats, as a tree. Results of many such sums are added in double. The error of a sum of n terms is
/// then log2(width) * 2^-24 of the sum of absolute terms, plus a negligible n * 2^-53 of it.
template <int width>
__device__ float treeSum(const float (&values)[width]) {
  float sums[width];
  for (int i = 0; i < width; ++i)
    sums[i] = values[i];
  for (int half = width / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      sums[i] += sums[i + half];
  return sums[0];
}

/// Floats added in sequence before they are added to a double, if they are not in packs: 7 * 2^-24.
inline constexpr int floatTerms = 8;

// ---- over a warp, a block, the lanes of a block of columns

/// The value of the thread whose lane differs in the bits `lanes`. T: any plain value without padding.
template <class T>
__device__ T shuffleXor(T value, int lanes) {
  constexpr int count = (sizeof(T) + sizeof(unsigned) - 1) / sizeof(unsigned);
  unsigned words[count] = {};
  memcpy(words, &value, sizeof value);
  for (int i = 0; i < count; ++i)
    words[i] = __shfl_xor_sync(fullWarp, words[i], lanes);
  memcpy(&value, words, sizeof value);
  return value;
}

/// Merges over the warp, for all its lanes. `merge` must be commutative.
template <class T, class Merge>
__device__ T warpReduce(T value, Merge merge) {
  for (int lanes = warpLanes / 2; lanes > 0; lanes /= 2)
    value = merge(value, shuffleXor(value, lanes));
  return value;
}
template <class T>
__device__ T warpSum(T value) {
  return warpReduce(value, Plus{});
}
/// NaN if there is one.
template <class T>
__device__ T warpMax(T value) {
  return warpReduce(value, Larger{});
}

/// Merges over a one-dimensional block, for all its threads; merging with `empty` changes nothing. Has barriers, and
/// may be called again immediately.
template <class T, class Merge>
__device__ T blockReduce(T value, T empty, Merge merge) {
  __shared__ T ofWarps[warpLanes];
  const int lane = threadIdx.x % warpLanes, warp = threadIdx.x / warpLanes;
  value = warpReduce(value, merge);
  __syncthreads(); // others may still read what an earlier call left
  if (lane == 0)
    ofWarps[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / warpLanes ? ofWarps[lane] : empty;
  return warpReduce(value, merge); // in every warp: cheaper than another barrier
}
template <class T>
__device__ T blockSum(T value) {
  return blockReduce(value, T(0), Plus{});
}
/// NaN if there is one; `lowest` is at most every value.
template <class T>
__device__ T blockMax(T value, T lowest) {
  return blockReduce(value, lowest, Larger{});
}

/// The largest block, in threads, that mergeLanes supports.
inline constexpr int maxColumnThreads = 512;

/// In a block of (columns, lanes) threads, lanes a power of two: merges the values of a column, for lane 0. Has
/// barriers, and may be called again immediately.
template <class T, class Merge>
__device__ T mergeLanes(T value, Merge merge) {
  __shared__ T parts[maxColumnThreads];
  const unsigned columns = blockDim.x, lane = threadIdx.y, own = lane * columns + threadIdx.x;
  __syncthreads(); // others may still read what an earlier call left
  parts[own] = value;
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
      parts[own] = value = merge(value, parts[own + half * columns]);
  }
  return value;
}

// ---- teams

/// Each warp of the grid takes a row, then advances by the number of warps.
struct WarpTeam {
  static __device__ std::int64_t firstRow() {
    return std::int64_t{blockIdx.x} * (blockDim.x / warpLanes) + threadIdx.x / warpLanes;
  }
  static __device__ std::int64_t rowStep() { return std::int64_t{gridDim.x} * (blockDim.x / warpLanes); }
  static __device__ int thread() { return threadIdx.x % warpLanes; }
  static __device__ int threads() { return warpLanes; }
  template <class T, class Merge>
  static __device__ T reduce(T value, T, Merge merge) {
    return warpReduce(value, merge);
  }
  static __device__ double sum(double value) { return warpSum(value); }
};

/// The same for blocks.
struct BlockTeam {
  static __device__ std::int64_t firstRow() { return blockIdx.x; }
  static __device__ std::int64_t rowStep() { return gridDim.x; }
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int threads() { return static_cast<int>(blockDim.x); }
  template <class T, class Merge>
  static __device__ T reduce(T value, T empty, Merge merge) {
    return blockReduce(value, empty, merge);
  }
  static __device__ double sum(double value) { return blockSum(value); }
};

// ---- packs

/// Elements first, first + stride, ... of a row.
template <int count>
struct StridedPack {
  static constexpr int width = count;
  std::int64_t first, stride;
  __device__ std::int64_t at(int i) const { return first + i * stride; }
};

/// Elements first, first + 1, ... of a row, aligned.
template <int count>
struct AlignedPack {
  static constexpr int width = count;
  std::int64_t first;
  __device__ std::int64_t at(int i) const { return first + i; }
};

template <class T, int width>
__device__ void load(const T *row, const AlignedPack<width> &pack, float (&to)[width]) {
  const Pack<T, width> from = *reinterpret_cast<const Pack<T, width> *>(row + pack.first);
  for (int i = 0; i < width; ++i)
    to[i] = static_cast<float>(from.values[i]);
}
template <class T, int width>
__device__ void load(const T *row, const StridedPack<width> &pack, float (&to)[width]) {
  for (int i = 0; i < width; ++i)
    to[i] = static_cast<float>(row[pack.at(i)]);
}

template <class T, int width>
__device__ void store(const float (&from)[width], T *row, const AlignedPack<width> &pack) {
  Pack<T, width> to;
  for (int i = 0; i < width; ++i)
    to.values[i] = static_cast<T>(from[i]);
  *reinterpret_cast<Pack<T, width> *>(row + pack.first) = to;
}
template <class T, int width>
__device__ void store(const float (&from)[width], T *row, const StridedPack<width> &pack) {
  for (int i = 0; i < width; ++i)
    row[pack.at(i)] = static_cast<T>(from[i]);
}

/// Whether rows of so many columns consist of aligned packs of `width` elements.
template <int width, class... T>
bool arePacked(std::int64_t columns, const T *...rows) {
  return columns % width == 0 && ((reinterpret_cast<std::uintptr_t>(rows) % (sizeof(T) * width) == 0) && ...);
}

// ---- rows

/// How a team of type `TeamOfRow` goes over a row. Row kernels are instantiated on it.
template <class TeamOfRow, int width, bool isPacked>
struct RowGeometry {
  using Team = TeamOfRow;

  /// Calls visit(pack) for every pack of this thread. Visits must not have barriers or shuffles.
  template <class Visit>
  static __device__ void forEachPack(std::int64_t columns, Visit visit) {
    const std::int64_t threads = Team::threads(), thread = Team::thread();
    if constexpr (isPacked) {
      for (std::int64_t j = thread * width; j < columns; j += threads * width)
        visit(AlignedPack<width>{j});
    } else {
      std::int64_t j = thread;
      for (; j + (width - 1) * threads < columns; j += width * threads)
        visit(StridedPack<width>{j, threads});
      for (; j < columns; j += threads)
        visit(AlignedPack<1>{j});
    }
  }
};

/// Elements in 16 bytes.
template <class T>
inline constexpr int packWidth = 16 / sizeof(T);

/// Calls start(RowGeometry<...>{}, grid) with the geometry for these rows. `operands` are all that are read or written
/// in packs; null operands count as aligned.
template <class Start, class T, class... Operands>
void withRowGeometry(const Context &c, std::int64_t rows, std::int64_t columns, Start start, const T *operand,
                     const Operands *...operands) {
  constexpr int width = packWidth<T>;
  const bool areWarps = columns <= longestWarpRow, packed = arePacked<width>(columns, operand, operands...);
  const Grid grid = gridFor(c, rows * (areWarps ? warpLanes : rowThreads), rowThreads);
  if (areWarps && packed)
    start(RowGeometry<WarpTeam, width, true>{}, grid);
  else if (areWarps)
    start(RowGeometry<WarpTeam, width, false>{}, grid);
  else if (packed)
    start(RowGeometry<BlockTeam, width, true>{}, grid);
  else
    start(RowGeometry<BlockTeam, width, false>{}, grid);
}

// ---- the sum of exponentials in one pass

/// The sum of exp(value - shift) over the values so far. The shift is at most the largest of them, and at most `slack`
/// below it. NaN is never a shift, but makes the sum NaN.
struct ShiftedSum {
  double sum;   ///< accumulates trees of floats
  double shift; ///< a float, stored as double to avoid padding (shuffleXor)
};

inline constexpr ShiftedSum noShiftedSum{0, -scalar::infinity};

/// Values are relative to the shift, or to 0 if all are -infinity: each of them then adds 0, not NaN.
inline __device__ float shiftFor(float largest) { return largest == -scalar::infinity ? 0.0f : largest; }

/// The shift follows the largest value in steps. A step scales the earlier sum, and its rounding errors, by e^-slack or
/// less. If the shift followed every rise, a row that rises slowly would round its sum n times.
inline constexpr float slack = 8;

template <int width>
__device__ void include(ShiftedSum &total, const float (&values)[width]) {
  float largest = -scalar::infinity;
  for (int i = 0; i < width; ++i)
    largest = values[i] > largest ? values[i] : largest;
  if (largest > static_cast<float>(total.shift) + slack) {
    total.sum *= static_cast<double>(scalar::exp(static_cast<float>(total.shift) - largest));
    total.shift = static_cast<double>(largest);
  }
  const float shift = shiftFor(static_cast<float>(total.shift));
  float exponentials[width];
  for (int i = 0; i < width; ++i)
    exponentials[i] = scalar::exp(values[i] - shift);
  total.sum += static_cast<double>(treeSum(exponentials));
}

struct LargerNumber {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

/// Over a team. Each sum is scaled once.
template <class Team>
__device__ ShiftedSum reduceShifted(const ShiftedSum &mine) {
  const float own = static_cast<float>(mine.shift);
  const float largest = Team::reduce(own, -scalar::infinity, LargerNumber{}), shift = shiftFor(largest);
  const double sum = Team::sum(mine.sum * static_cast<double>(scalar::exp(own - shift)));
  return {sum, static_cast<double>(largest)};
}

} // namespace fsdpc::rt
