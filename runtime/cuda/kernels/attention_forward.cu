// Attention forward: a block has a tile of queries and walks over the keys and values that they see.
//
// Per query the warp keeps the largest score so far, the sum of exponentials relative to it and the output weighted by
// them. A step that finds a larger score scales both down first; most steps find none, and skip that.
#include "runtime/cuda/kernels/attention.h"

#include "runtime/cuda/kernels/attention_scores.h"

namespace fsdpc::rt {

namespace {

using namespace flash;

template <class T, int tileWidth>
struct ForwardSizes {
  static constexpr int width = tileWidth, rowBytes = width * static_cast<int>(sizeof(T));
  static constexpr int rowTiles = onTensorCores<T> && width <= 128 ? 2 : 1;
  static constexpr int warps = rowBytes <= 512 ? 4 : 2, threads = warps * warpLanes;
  static constexpr int warpRows = 16 * rowTiles, rows = warps * warpRows;
  static constexpr int step = rowBytes <= 128 ? 64 : rowBytes <= 512 ? 32 : 16;
  static constexpr int sharedBytes = (rows + 4 * step) * rowBytes; // queries, two stages of keys and values
};

template <class T, int width>
struct ForwardTiles {
  using Sizes = ForwardSizes<T, width>;
  T *shared;
  __device__ Tile<T, width> queries() const { return {shared}; }
  __device__ Tile<T, width> keys(int stage) const { return {shared + (Sizes::rows + 2 * stage * Sizes::step) * width}; }
  __device__ Tile<T, width> values(int stage) const { return {keys(stage).data + Sizes::step * width}; }
};

/// Of a lane's rows: the largest score, for all lanes of a group alike, and the lane's part of the sum.
template <int rows>
struct Softmax {
  float largest[rows], sum[rows];
  __device__ Softmax() {
    FSDPC_UNROLL
    for (int r = 0; r < rows; ++r) {
      largest[r] = -scalar::infinity;
      sum[r] = 0;
    }
  }
};

/// Over the four lanes that share a row. NaN is never the largest (it makes the sum NaN).
__device__ inline float largestOfGroup(float value) {
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    const float other = __shfl_xor_sync(wholeWarp, value, lanes);
    value = other > value ? other : value;
  }
  return value;
}
__device__ inline float sumOfGroup(float value) {
  for (int lanes = 1; lanes < 4; lanes *= 2)
    value += __shfl_xor_sync(wholeWarp, value, lanes);
  return value;
}

/// Raises the largest scores to those of this step; what was summed relative to smaller ones is scaled.
template <class T, int rowTiles, int step, int width>
__device__ void raiseLargest(Softmax<2 * rowTiles> &softmax, const Sums<T, rowTiles, step> &scores,
                             Sums<T, rowTiles, width> &output) {
  float factors[2 * rowTiles];
  bool anyRaised = false;
  FSDPC_UNROLL
  for (int r = 0; r < 2 * rowTiles; ++r) {
    float largest = softmax.largest[r];
    FSDPC_UNROLL
    for (int c = 0; c < scores.columnsPerLane; ++c)
      largest = scores.at(r, c) > largest ? scores.at(r, c) : largest;
    largest = largestOfGroup(largest);
    const bool isRaised = largest > softmax.largest[r];
    factors[r] = isRaised ? exponential<T>(softmax.largest[r] - shiftFor(largest)) : 1.0f;
    softmax.largest[r] = largest;
    softmax.sum[r] *= factors[r];
    anyRaised = anyRaised || isRaised;
  }
  if (__ballot_sync(wholeWarp, anyRaised) != 0)
    output.forEach([&](int r, int, float &value) { value *= factors[r]; });
}

/// Scores become exponentials relative to the largest score, and are added to the sum.
template <class T, int rowTiles, int step>
__device__ void takeExponentials(Softmax<2 * rowTiles> &softmax, Sums<T, rowTiles, step> &scores) {
  scores.forEach([&](int r, int, float &score) {
    score = exponential<T>(score - shiftFor(softmax.largest[r]));
    softmax.sum[r] += score;
  });
}

/// Divides the output by the sums, and writes their logarithms.
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

template <class T, int width>
__global__ void __launch_bounds__(ForwardSizes<T, width>::threads)
    attentionForward(Problem problem, const T *q, const T *k, const T *v, T *o, float *lse) {
  using Sizes = ForwardSizes<T, width>;
  const ForwardTiles<T, width> tiles{sharedMemory<T>()};
  const QueryBlock<Sizes> block(problem);
  Softmax<2 * Sizes::rowTiles> softmax;
  Sums<T, Sizes::rowTiles, width> output;
  output.clear();
  startTile<Sizes::rows, Sizes::threads>(tiles.queries(), queryRows(problem, q, block.batch, block.head),
                                         block.firstQuery, problem.packed);
  walk<2>(
      block.steps,
      [&](int step, int stage) { block.startKeys(problem, step, k, v, tiles.keys(stage), tiles.values(stage)); },
      [&](int step, int stage) {
        if (block.skips(problem, step))
          return;
        Sums<T, Sizes::rowTiles, Sizes::step> scores;
        scores.clear();
        addRowProducts(scores, tiles.queries(), block.warpRow, tiles.keys(stage));
        finishScores<false>(scores, problem, block.batch, block.head, block.firstRow, step * Sizes::step);
        raiseLargest(softmax, scores, output);
        takeExponentials(softmax, scores);
        addWeightedRows(output, scores, tiles.values(stage), 0);
      });
  finishRows(softmax, output, lse + block.firstStatistic(problem), block.firstRow, problem.queries);
  // Of the queries a warp reads its own rows only, and no longer.
  putSums(output, tiles.queries(), block.warpRow, 0);
  storeRows<Sizes::warpRows, width>(tiles.queries(), block.warpRow, outputRows(problem, o, block.batch, block.head),
                                    block.firstRow, 0, problem.packed);
}

} // namespace

std::int64_t attentionScratchBytes(const AttentionShape &) { return 0; }

template <class T>
void attention(const Context &c, const AttentionShape &shape, const T *q, const T *k, const T *v, const float *mask,
               T *o, float *lse, Workspace) {
  if (shape.batch * shape.heads == 0)
    return;
  const Problem problem = problemOf<T>(shape, mask, q, k, v, o);
  withTileWidth(shape, [&](auto width) {
    using Sizes = ForwardSizes<T, width()>;
    const std::int64_t blocks = shape.batch * shape.heads * tilesOf(problem.queries, Sizes::rows);
    launchTiles<Sizes>(c, blocks, attentionForward<T, width()>, problem, q, k, v, o, lse);
  });
}

template void attention(const Context &, const AttentionShape &, const float *, const float *, const float *,
                        const float *, float *, float *, Workspace);
template void attention(const Context &, const AttentionShape &, const Bfloat16 *, const Bfloat16 *, const Bfloat16 *,
                        const float *, Bfloat16 *, float *, Workspace);
template void attention(const Context &, const AttentionShape &, const Float16 *, const Float16 *, const Float16 *,
                        const float *, Float16 *, float *, Workspace);

} // namespace fsdpc::rt
