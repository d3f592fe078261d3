// gatherRows uses one thread per word of the answers. scatterRows has a block per index and strip of columns, as
// scatterAdd (index.cu): the block of the first index of a row of this rank sums that row's updates.
#include "runtime/cuda/kernels/rows.h"

#include "runtime/cuda/kernels/update_sums.h"
#include "runtime/cuda/launch.h"

namespace fsdpc::rt {

namespace {

using namespace update_sums;

/// Trees of up to 2^16 ranks.
constexpr int maxDepth = 17;

template <class Word, class Index>
__global__ void answer(RowsShape shape, std::int64_t first, Word minusZero, Word nothing, IndexFaults faults,
                       const Word *shard, const Index *indices, Word *answers) {
  const std::int64_t words = shape.count * shape.inner, step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    const std::int64_t at = i / shape.inner, position = positionOf(indices[at], shape.size), row = position - first;
    if (position < 0)
      report(faults, indices[at], 0);
    const bool isOwn = row >= 0 && row < shape.own;
    answers[i] = position < 0 ? nothing : isOwn ? shard[row * shape.inner + (i - at * shape.inner)] : minusZero;
  }
}

/// The partial sums over the ranks so far: sums of complete subtrees, the largest first. Their sizes are the bits of
/// the number of ranks.
struct RankTree {
  float sums[maxDepth][columnsOfThread];
  int count = 0;

  /// Adds the sum of the next rank, the `ranks`-th.
  __device__ void add(const float (&sum)[columnsOfThread], int ranks) {
    for (int k = 0; k < columnsOfThread; ++k)
      sums[count][k] = sum[k];
    for (++count; ranks % 2 == 0; ranks /= 2)
      join();
  }
  /// Adds the last two sums.
  __device__ void join() {
    --count;
    for (int k = 0; k < columnsOfThread; ++k)
      sums[count - 1][k] += sums[count][k];
  }
};

template <class Update, class Index>
__device__ void sumEqualRows(const RowsShape &shape, std::int64_t first, const Rows<Index> &rows, std::int64_t strips,
                             std::int64_t task, const Update *updates, float *x) {
  const std::int64_t index = task / strips, row = rows.at(index), own = row - first;
  if (threadIdx.x == 0 && rows.isOutside(index))
    report(rows.faults, rows.indices[index], 0);
  if (row < 0 || own < 0 || own >= shape.own || rows.contain(row, 0, index))
    return;
  const std::int64_t column = task % strips * columnsOfBlock + threadIdx.x, perRank = shape.count / shape.ranks;
  std::int64_t from[columnsOfThread];
  for (int k = 0; k < columnsOfThread; ++k)
    from[k] = column + k * threads < shape.inner ? column + k * threads : 0;
  RankTree tree;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    double sums[columnsOfThread] = {};
    const std::int64_t begin = rank * perRank, end = begin + perRank;
    if (end > index)
      addUpdates<float>(rows, row, begin, end, shape.inner, updates, from, sums);
    float rounded[columnsOfThread];
    for (int k = 0; k < columnsOfThread; ++k)
      rounded[k] = static_cast<float>(sums[k]);
    tree.add(rounded, rank + 1);
  }
  while (tree.count > 1)
    tree.join();
  for (int k = 0; k < columnsOfThread; ++k)
    if (column + k * threads < shape.inner)
      x[own * shape.inner + column + k * threads] = tree.sums[0][k];
}

template <class Update, class Index>
__global__ void sumRows(RowsShape shape, std::int64_t first, Rows<Index> rows, std::int64_t strips,
                        const Update *updates, float *x) {
  for (std::int64_t task = blockIdx.x; task < shape.count * strips; task += gridDim.x)
    sumEqualRows(shape, first, rows, strips, task, updates, x);
}

template <class Word>
Word wordOf(std::uint64_t bits) {
  Word word;
  for (std::size_t at = 0; at < sizeof word; at += std::min(sizeof word, sizeof bits))
    std::memcpy(reinterpret_cast<std::byte *>(&word) + at, &bits, std::min(sizeof word - at, sizeof bits));
  return word;
}

} // namespace

template <class T, class Index>
void gatherRows(const Context &c, const RowsShape &given, const T *shard, const Index *indices, T *answers) {
  RowsShape shape = given;
  if (shape.count * shape.inner == 0)
    return;
  constexpr std::uint64_t minusZeros = sizeof(T) == 2 ? 0x8000800080008000u : 0x8000000080000000u;
  constexpr std::uint64_t nothing = ~std::uint64_t{0};
  const std::uint64_t places = reinterpret_cast<std::uintptr_t>(shard) | reinterpret_cast<std::uintptr_t>(answers);
  const std::int64_t first = shape.firstOf(c.rank);
  const IndexFaults faults = indexFaults(c, shape.node);
  if ((places | static_cast<std::uint64_t>(shape.inner * static_cast<std::int64_t>(sizeof(T)))) % sizeof(uint4) == 0) {
    shape.inner /= static_cast<std::int64_t>(sizeof(uint4) / sizeof(T));
    launch(c, gridFor(c, shape.count * shape.inner), answer<uint4, Index>, shape, first, wordOf<uint4>(minusZeros),
           wordOf<uint4>(nothing), faults, reinterpret_cast<const uint4 *>(shard), indices,
           reinterpret_cast<uint4 *>(answers));
  } else {
    launch(c, gridFor(c, shape.count * shape.inner), answer<T, Index>, shape, first, wordOf<T>(minusZeros),
           wordOf<T>(nothing), faults, shard, indices, answers);
  }
}

template <class Update, class Index>
void scatterRows(const Context &c, const RowsShape &shape, const Index *indices, const Update *updates, float *x,
                 Workspace) {
  const std::int64_t bytes = shape.own * shape.inner * static_cast<std::int64_t>(sizeof(float));
  checkCuda(cudaMemsetAsync(x, 0, static_cast<std::size_t>(bytes), deviceOf(c).compute), "memset");
  if (shape.count * shape.inner == 0)
    return;
  const std::int64_t strips = (shape.inner + columnsOfBlock - 1) / columnsOfBlock;
  const std::int64_t blocks = std::min<std::int64_t>(shape.count * strips, 1 << 30);
  const Rows<Index> rows = {indices, shape.count, shape.size, -1, indexFaults(c, shape.node)};
  launch(c, {dim3(static_cast<unsigned>(blocks)), dim3(threads)}, sumRows<Update, Index>, shape, shape.firstOf(c.rank),
         rows, strips, updates, x);
}

#define FSDPC_ROWS(Index)                                                                                              \
  template void gatherRows(const Context &, const RowsShape &, const std::uint16_t *, const Index *, std::uint16_t *); \
  template void gatherRows(const Context &, const RowsShape &, const std::uint32_t *, const Index *, std::uint32_t *); \
  template void scatterRows(const Context &, const RowsShape &, const Index *, const float *, float *, Workspace);     \
  template void scatterRows(const Context &, const RowsShape &, const Index *, const Bfloat16 *, float *, Workspace);  \
  template void scatterRows(const Context &, const RowsShape &, const Index *, const Float16 *, float *, Workspace);
FSDPC_ROWS(std::int64_t)
FSDPC_ROWS(std::int32_t)

} // namespace fsdpc::rt
