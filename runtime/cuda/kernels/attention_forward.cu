// Attention forward: a block has a tile of queries and walks over the keys and values that they see.
//
// Per query the warp keeps the largest score so far, the sum of exponentials relative to it and the output weighted by
// them. A step that finds a larger score first scales both down. Most steps find none and skip that.
#include "runtime/cuda/kernels/attention.h"

#include "runtime/cuda/kernels/attention_softmax.h"

namespace fsdpc::rt {

namespace {

using namespace flash;

/// Divides the output by the sums and writes the logarithms of the sums.
template <class T, int rowTiles, int width>
__device__ void finishRows(const Softmax<2 * rowTiles> &softmax, Sums<T, rowTiles, width> &output, float *lse,
                           int firstRow, int queries) {
  float factors[2 * rowTiles];
  FSDPC_UNROLL
  for (int r = 0; r < 2 * rowTiles; ++r) {
    const float sum = sumOfGroup(softmax.sum[r]);
    const int query = firstRow + output.row(r);
    factors[r] = sum == 0 ? 0.0f : 1.0f / sum;
    if (laneInGroup() == 0 && query < queries)
      lse[query] = softmax.largest[r] / scoreUnit<T> + logf(sum);
  }
  output.forEach([&](int r, int, float &value) { value *= factors[r]; });
}

/// Whether a query of this lane sees none of the keys so far.
template <class T, int rowTiles, int width>
__device__ bool seesNone(const Problem &problem, int firstRow, const Softmax<2 * rowTiles> &softmax,
                         const Sums<T, rowTiles, width> &output) {
  bool any = false;
  FSDPC_UNROLL
  for (int r = 0; r < 2 * rowTiles; ++r)
    any = any || (firstRow + output.row(r) < problem.queries && problem.seesNone(softmax.largest[r] / scoreUnit<T>));
  return any;
}

/// Adds the keys that the block sees. Its queries are in their tile, or on their way there.
template <class T, int width>
__device__ void walkKeys(const Problem &problem, const QueryBlock<ForwardSizes<T, width>> &block, const T *k,
                         const T *v, Softmax<2 * ForwardSizes<T, width>::rowTiles> &softmax,
                         Sums<T, ForwardSizes<T, width>::rowTiles, width> &output) {
  using Sizes = ForwardSizes<T, width>;
  const ForwardTiles<T, width> tiles{sharedMemory<T>()};
  walk<2>(
      block.steps,
      [&](int step, int stage) { block.startKeys(problem, step, k, v, tiles.keys(stage), tiles.values(stage)); },
      [&](int step, int stage) {
        if (block.skips(problem, step))
          return;
        Sums<T, Sizes::rowTiles, Sizes::step> scores;
        scores.clear();
        addRowProducts(scores, tiles.queries(), block.warpRow, tiles.keys(stage));
        finishScores<false>(scores, problem, block.batch, block.head, block.firstRow, block.firstKeyOf(step));
        float factors[2 * Sizes::rowTiles];
        if (raiseLargest(softmax, scores, factors))
          output.forEach([&](int r, int, float &value) { value *= factors[r]; });
        takeExponentials(softmax, scores);
        addWeightedRows(output, scores, tiles.values(stage), 0);
      });
}

template <class T, int width>
__global__ void __launch_bounds__(ForwardSizes<T, width>::threads)
    attentionForward(Problem problem, const T *q, const T *k, const T *v, T *o, float *lse) {
  using Sizes = ForwardSizes<T, width>;
  const ForwardTiles<T, width> tiles{sharedMemory<T>()};
  QueryBlock<Sizes> block(problem);
  Softmax<2 * Sizes::rowTiles> softmax;
  Sums<T, Sizes::rowTiles, width> output;
  output.clear();
  startTile<Sizes::rows, Sizes::threads>(tiles.queries(), queryRows(problem, q, block.batch, block.head),
                                         block.firstQuery, problem.packed);
  walkKeys<T, width>(problem, block, k, v, softmax, output);
  if (problem.hidesFinitely() && __syncthreads_or(seesNone(problem, block.firstRow, softmax, output))) {
    block.seeAll(problem);
    softmax = {};
    output.clear();
    walkKeys<T, width>(problem, block, k, v, softmax, output);
  }
  finishRows(softmax, output, lse + block.firstStatistic(problem), block.firstRow, problem.queries);
  // Each warp has read only its own rows of the query tile and is done with them, so they hold the result now.
  storeSums(output, tiles.queries(), block.warpRow, 0);
  storeRows<Sizes::warpRows, width>(tiles.queries(), block.warpRow, outputRows(problem, o, block.batch, block.head),
                                    block.firstRow, 0, problem.packed);
}

} // namespace

std::int64_t attentionScratchBytes(const AttentionShape &) { return 0; }

template <class T>
void attention(const Context &c, const AttentionShape &shape, const T *q, const T *k, const T *v,
               const AttentionMasks &masks, T *o, float *lse, Workspace) {
  if (shape.batch * shape.heads == 0)
    return;
  const Problem problem = problemOf<T>(shape, masks, q, k, v, o);
  withTileWidth(shape, [&](auto width) {
    using Sizes = ForwardSizes<T, width()>;
    const std::int64_t blocks = shape.batch * shape.heads * tilesOf(problem.queries, Sizes::rows);
    launchTiles<Sizes>(c, blocks, attentionForward<T, width()>, problem, q, k, v, o, lse);
  });
}

template void attention(const Context &, const AttentionShape &, const float *, const float *, const float *,
                        const AttentionMasks &, float *, float *, Workspace);
template void attention(const Context &, const AttentionShape &, const Bfloat16 *, const Bfloat16 *, const Bfloat16 *,
                        const AttentionMasks &, Bfloat16 *, float *, Workspace);
template void attention(const Context &, const AttentionShape &, const Float16 *, const Float16 *, const Float16 *,
                        const AttentionMasks &, Float16 *, float *, Workspace);

} // namespace fsdpc::rt
