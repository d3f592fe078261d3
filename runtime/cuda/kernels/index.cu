// gather and gatherNd use one thread per word of the result. A word is 16 bytes if rows consist of such words.
//
// scatterAdd, the gradient of an embedding, must add rows with equal indices in the order of the indices, without
// atomics and without scratch. So each index has a block. It returns immediately if an earlier position has the same
// index. Otherwise it owns that row of x, collects the later positions with its index, in order, and adds their updates
// in registers. Reading all indices once per block costs little compared with the rows (8192 indices stay in the L1
// cache). Most rows have one update, and a row with many is walked by one block.
#include "runtime/cuda/kernels/index.h"

#include "runtime/cuda/kernels/update_sums.h"
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

using namespace update_sums;

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
