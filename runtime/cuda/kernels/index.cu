// gather and gatherNd use one thread per word of the result. A word is 16 bytes if rows consist of such words.
//
// scatterAdd, the gradient of an embedding, must add rows with equal indices in the order of the indices, without
// atomics and without scratch. So each index has a block. It returns immediately if an earlier position has the same
// index. Otherwise it owns that row of x, collects the later positions with its index, in order, and adds their updates
// in registers. Reading all indices once per block costs little compared with the rows (8192 indices stay in the L1
// cache). Most rows have one update, and a row with many is walked by one block.
#include "runtime/cuda/kernels/index.h"

#include "runtime/cuda/kernels/block.h"

#include "runtime/cuda/kernels/index_position.h"
#include "runtime/cuda/kernels/scalar.h"
#include "runtime/cuda/launch.h"

namespace fsdpc::rt {

namespace {

template <class Word>
__device__ Word allBitsSet() {
  Word word;
  memset(&word, 0xff, sizeof word);
  return word;
}

// ---- gather

template <class Word, class Index>
__global__ void gatherRows(GatherShape shape, IndexFaults faults, const Word *x, const Index *indices, Word *y) {
  const std::int64_t words = shape.outer * shape.count * shape.inner, step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    const std::int64_t row = i / shape.inner, outer = row / shape.count;
    const std::int64_t index = indices[row - outer * shape.count], position = positionOf(index, shape.size);
    if (position < 0)
      report(faults, index, 0);
    const std::int64_t from = (outer * shape.size + position) * shape.inner + (i - row * shape.inner);
    y[i] = position < 0 ? allBitsSet<Word>() : x[from];
  }
}

template <class Word, class Index>
__global__ void gatherTuples(GatherNdShape shape, IndexFaults faults, std::int64_t rowsOfBatch, const Word *x,
                             const Index *indices, Word *y) {
  const std::int64_t words = shape.batch * shape.count * shape.inner, step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    const std::int64_t tuple = i / shape.inner, batch = tuple / shape.count;
    const std::int64_t row = rowOfTuple(shape, indices + tuple * shape.depth, faults);
    const std::int64_t from = (batch * rowsOfBatch + row) * shape.inner + (i - tuple * shape.inner);
    y[i] = row < 0 ? allBitsSet<Word>() : x[from];
  }
}

/// Rows are moved in words of 16 bytes.
bool isWide(std::int64_t rowBytes, const void *x, const void *y) {
  return (static_cast<std::uint64_t>(rowBytes) | reinterpret_cast<std::uintptr_t>(x) |
          reinterpret_cast<std::uintptr_t>(y)) %
             sizeof(uint4) ==
         0;
}

// ---- scatterAdd

constexpr int threads = 256, lanes = 32, warps = threads / lanes;
constexpr int columnsOfThread = 4; ///< independent loads
constexpr int columnsOfBlock = threads * columnsOfThread;

__device__ int countBits(unsigned word) {
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
__device__ bool anyOfBlock(bool mine) {
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

/// The block handles index task / strips, for strip task % strips of the outer * inner columns.
template <class Update, class T, class Index>
__device__ void sumEqualIndices(const GatherShape &shape, const Rows<Index> &rows, std::int64_t strips,
                                std::int64_t task, const Update *updates, T *x) {
  const std::int64_t first = task / strips, row = rows.at(first);
  if (threadIdx.x == 0 && rows.isOutside(first))
    report(rows.faults, rows.indices[first], 0);
  if (row < 0 || rows.contain(row, 0, first))
    return;
  const std::int64_t columns = shape.outer * shape.inner;
  const std::int64_t column = task % strips * columnsOfBlock + threadIdx.x;
  std::int64_t from[columnsOfThread], to[columnsOfThread];
  using Sum = typename SumOf<Update>::Type;
  typename AccumulatorOf<Sum>::Type sums[columnsOfThread] = {};
  for (int k = 0; k < columnsOfThread; ++k) {
    // Threads past the last column sum column 0 and store nothing, which saves a test in the loop over updates.
    const std::int64_t known = column + k * threads < columns ? column + k * threads : 0;
    const std::int64_t outer = known / shape.inner, inner = known - outer * shape.inner;
    from[k] = outer * shape.count * shape.inner + inner;
    to[k] = (outer * shape.size + row) * shape.inner + inner;
  }
  const std::int64_t end = rows.contain(row, first + 1, shape.count) ? shape.count : first + 1;
  addUpdates<Sum>(rows, row, first, end, shape.inner, updates, from, sums);
  for (int k = 0; k < columnsOfThread; ++k)
    if (column + k * threads < columns)
      x[to[k]] = scalar::cast<T>(sums[k]);
}

template <class Update, class T, class Index>
__global__ void sumUpdates(GatherShape shape, Rows<Index> rows, std::int64_t strips, const Update *updates, T *x) {
  for (std::int64_t task = blockIdx.x; task < shape.count * strips; task += gridDim.x)
    sumEqualIndices(shape, rows, strips, task, updates, x);
}

// ---- iota

template <class T>
__global__ void countUp(std::int64_t elements, std::int64_t count, std::int64_t inner, double start, double step,
                        T *out) {
  const std::int64_t threadCount = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += threadCount)
    out[i] = scalar::cast<T>(start + step * static_cast<double>(i / inner % count));
}

} // namespace

template <class T, class Index>
void gather(const Context &c, const GatherShape &given, const T *x, const Index *indices, T *y) {
  GatherShape shape = given;
  if (shape.outer * shape.count * shape.inner == 0)
    return;
  const bool wide = isWide(shape.inner * static_cast<std::int64_t>(sizeof(T)), x, y);
  if (wide)
    shape.inner /= static_cast<std::int64_t>(sizeof(uint4) / sizeof(T));
  const Grid grid = gridFor(c, shape.outer * shape.count * shape.inner);
  const IndexFaults faults = indexFaults(c, shape.node);
  if (wide)
    launch(c, grid, gatherRows<uint4, Index>, shape, faults, reinterpret_cast<const uint4 *>(x), indices,
           reinterpret_cast<uint4 *>(y));
  else
    launch(c, grid, gatherRows<T, Index>, shape, faults, x, indices, y);
}

template <class T, class Index>
void gatherNd(const Context &c, const GatherNdShape &given, const T *x, const Index *indices, T *y) {
  GatherNdShape shape = given;
  if (shape.batch * shape.count * shape.inner == 0)
    return;
  const std::int64_t rows = shape.rows();
  const bool wide = isWide(shape.inner * static_cast<std::int64_t>(sizeof(T)), x, y);
  if (wide)
    shape.inner /= static_cast<std::int64_t>(sizeof(uint4) / sizeof(T));
  const Grid grid = gridFor(c, shape.batch * shape.count * shape.inner);
  const IndexFaults faults = indexFaults(c, shape.node);
  if (wide)
    launch(c, grid, gatherTuples<uint4, Index>, shape, faults, rows, reinterpret_cast<const uint4 *>(x), indices,
           reinterpret_cast<uint4 *>(y));
  else
    launch(c, grid, gatherTuples<T, Index>, shape, faults, rows, x, indices, y);
}

template <class Update, class T, class Index>
void scatterAdd(const Context &c, const GatherShape &shape, const Index *indices, const Update *updates, T *x,
                Workspace) {
  const std::int64_t columns = shape.outer * shape.inner, bytes = columns * shape.size * sizeof(T);
  if (bytes == 0)
    return;
  checkCuda(cudaMemsetAsync(x, 0, static_cast<std::size_t>(bytes), deviceOf(c).compute), "memset");
  if (shape.count == 0)
    return;
  const std::int64_t strips = (columns + columnsOfBlock - 1) / columnsOfBlock;
  const std::int64_t blocks = std::min<std::int64_t>(shape.count * strips, 1 << 30);
  const Rows<Index> rows = {indices, shape.count, shape.size, std::is_integral_v<T> ? -1 : 0,
                            indexFaults(c, shape.node)};
  launch(c, {dim3(static_cast<unsigned>(blocks)), dim3(threads)}, sumUpdates<Update, T, Index>, shape, rows, strips,
         updates, x);
}

template <class T>
void iota(const Context &c, std::int64_t outer, std::int64_t count, std::int64_t inner, double start, double step,
          T *out) {
  const std::int64_t elements = outer * count * inner;
  if (elements > 0)
    launch(c, gridFor(c, elements), countUp<T>, elements, count, inner, start, step, out);
}

#define FSDPC_GATHERS(T, Index)                                                                                        \
  template void gather(const Context &, const GatherShape &, const T *, const Index *, T *);                           \
  template void gatherNd(const Context &, const GatherNdShape &, const T *, const Index *, T *);
#define FSDPC_SCATTERS(Update, T, Index)                                                                               \
  template void scatterAdd(const Context &, const GatherShape &, const Index *, const Update *, T *, Workspace);
#define FSDPC_INDEXING(Index)                                                                                          \
  FSDPC_GATHERS(std::uint8_t, Index)                                                                                   \
  FSDPC_GATHERS(std::uint16_t, Index)                                                                                  \
  FSDPC_GATHERS(std::uint32_t, Index)                                                                                  \
  FSDPC_GATHERS(std::uint64_t, Index)                                                                                  \
  FSDPC_SCATTERS(float, float, Index)                                                                                  \
  FSDPC_SCATTERS(double, double, Index)                                                                                \
  FSDPC_SCATTERS(std::int64_t, std::int64_t, Index)                                                                    \
  FSDPC_SCATTERS(std::int32_t, std::int32_t, Index)                                                                    \
  FSDPC_SCATTERS(std::uint8_t, std::uint8_t, Index)                                                                    \
  FSDPC_SCATTERS(Bfloat16, Bfloat16, Index)                                                                            \
  FSDPC_SCATTERS(Bfloat16, float, Index)                                                                               \
  FSDPC_SCATTERS(Float16, Float16, Index)                                                                              \
  FSDPC_SCATTERS(Float16, float, Index)
FSDPC_INDEXING(std::int64_t)
FSDPC_INDEXING(std::int32_t)

template void iota(const Context &, std::int64_t, std::int64_t, std::int64_t, double, double, float *);
template void iota(const Context &, std::int64_t, std::int64_t, std::int64_t, double, double, double *);
template void iota(const Context &, std::int64_t, std::int64_t, std::int64_t, double, double, std::int64_t *);
template void iota(const Context &, std::int64_t, std::int64_t, std::int64_t, double, double, std::int32_t *);
template void iota(const Context &, std::int64_t, std::int64_t, std::int64_t, double, double, std::uint8_t *);
template void iota(const Context &, std::int64_t, std::int64_t, std::int64_t, double, double, Bfloat16 *);
template void iota(const Context &, std::int64_t, std::int64_t, std::int64_t, double, double, Float16 *);

} // namespace fsdpc::rt
