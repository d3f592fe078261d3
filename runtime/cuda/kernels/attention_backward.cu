// Attention backward. No two blocks write the same element:
//
//   deltas      delta = rowsum(dO * o) per query
//   shifts      only with a mask: lse, and a factor of 1. For a row whose lse is too large to hold the logarithm
//               accurately: the largest score, and 1 / the sum of exponentials
//   queries     a block has a tile of queries and walks over the keys that they see: dq += ds k
//   keys        a block has a tile of keys and walks over the queries that see them, of every head of q that shares the
//               keys: dv += p^T dO, dk += ds^T q
//
// With a softcap, ds has its derivative as a factor. It is made from the products of q and k, computed once more, so
// that attention without a cap needs no registers for it.
//
//   p = exp(s - lse), with a mask exp(s - shift) * factor;   ds = p * (dO v^T - delta);   dq and dk are scaled at the
//   end
//
// The kernel for keys computes scores transposed, with keys as rows, so p^T and ds^T already have the layout of the
// next matmul's operand. For heads wider than 128, a block computes only 128 columns of dk and dv, which is what fits
// in registers.
#include "runtime/cuda/kernels/attention.h"

#include "runtime/cuda/kernels/attention_softmax.h"
#include "runtime/cuda/kernels/scratch_sizes.h"

namespace fsdpc::rt {

namespace {

using namespace flash;

/// A block keeps two tiles of one sequence (queries and dO, or keys and values) and `stages` pairs of the other.
template <class T, int tileWidth, int maxRegisterColumns>
struct BackwardSizes {
  static constexpr int width = tileWidth, rowBytes = width * static_cast<int>(sizeof(T));
  static constexpr int rowTiles = onTensorCores<T> && width <= maxRegisterColumns ? 2 : 1;
  static constexpr int warps = rowBytes <= 512 ? 4 : 2, threads = warps * warpLanes;
  static constexpr int warpRows = 16 * rowTiles, rows = warps * warpRows;
  static constexpr int step = rowBytes <= 384 ? 32 : 16, stages = rowBytes <= 512 ? 2 : 1;
  static constexpr int statisticsBytes = stages * 2 * step * static_cast<int>(sizeof(float));
  static constexpr int sharedBytes = 2 * (rows + stages * step) * rowBytes + statisticsBytes;
};
template <class T, int width>
using QuerySizes = BackwardSizes<T, width, 128>;
/// dk and dv together have twice as many sums as dq.
template <class T, int width>
struct KeySizes : BackwardSizes<T, width, 64> {
  static constexpr int columns = width < 128 ? width : 128, slices = width / columns;
};

template <class T, class Sizes>
struct BackwardTiles {
  using Of = Tile<T, Sizes::width>;
  T *shared;
  __device__ Of first() const { return {shared}; }
  __device__ Of second() const { return {shared + Sizes::rows * Sizes::width}; }
  __device__ Of firstOf(int stage) const { return {shared + 2 * (Sizes::rows + stage * Sizes::step) * Sizes::width}; }
  __device__ Of secondOf(int stage) const { return {firstOf(stage).data + Sizes::step * Sizes::width}; }
  /// Shift and delta of a stage's queries.
  __device__ float *shiftOf(int stage) const {
    return reinterpret_cast<float *>(firstOf(Sizes::stages).data) + 2 * stage * Sizes::step;
  }
  __device__ float *deltaOf(int stage) const { return shiftOf(stage) + Sizes::step; }
};

/// Threads that share a row of o. With one load each they read a row of typical width.
constexpr int deltaLanes = 8;

template <class T, int count>
struct alignas(sizeof(T) * count) Elements {
  T values[count];
};

/// This lane's part of the dot product of two rows, read `count` elements at a time.
template <int count, class T>
__device__ float partialProduct(const T *a, const T *b, int width) {
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x) % deltaLanes * count; d < width; d += deltaLanes * count) {
    const auto x = loadWord<Elements<T, count>>(a + d), y = loadWord<Elements<T, count>>(b + d);
    for (int i = 0; i < count; ++i)
      sum += static_cast<float>(x.values[i]) * static_cast<float>(y.values[i]);
  }
  return sum;
}

template <class T, int count>
__global__ void attentionDeltas(Problem problem, const T *dO, const T *o, float *deltas) {
  const std::int64_t rows = std::int64_t{problem.batch} * problem.heads * problem.queries;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x / deltaLanes;
  const std::int64_t mine = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / deltaLanes;
  // Whole warps stay in the loop, for the shuffles.
  for (std::int64_t row = mine; row - mine % (warpLanes / deltaLanes) < rows; row += step) {
    float sum = 0;
    if (row < rows) {
      const auto head = static_cast<int>(row / problem.queries), query = static_cast<int>(row % problem.queries);
      const Rows<const T> outputs = outputRows(problem, o, head / problem.heads, head % problem.heads);
      const T *const output = outputs.data + query * outputs.stride;
      sum = partialProduct<count>(dO + (output - o), output, problem.valueWidth);
    }
    for (int lanes = deltaLanes / 2; lanes > 0; lanes /= 2)
      sum += __shfl_xor_sync(fullWarp, sum, lanes);
    if (row < rows && threadIdx.x % deltaLanes == 0)
      deltas[row] = sum;
  }
}

/// Whether the derivative can be computed from lse: see largestExactLse.
__device__ inline bool isExactLse(float lse) { return lse == -scalar::infinity || fabsf(lse) <= largestExactLse; }

/// Writes shifts and factors for the warp's rows whose lse is not exact, from scores computed as in the other kernels.
template <class T, int width>
__device__ void writeOwnShifts(const Problem &problem, const QueryBlock<ForwardSizes<T, width>> &block, const T *q,
                               const T *k, const float *lse, float *shifts, float *factors) {
  using Sizes = ForwardSizes<T, width>;
  const ForwardTiles<T, width> tiles{sharedMemory<T>()};
  Softmax<2 * Sizes::rowTiles> softmax;
  Sums<T, Sizes::rowTiles, Sizes::step> scores;
  startTile<Sizes::rows, Sizes::threads>(tiles.queries(), queryRows(problem, q, block.batch, block.head),
                                         block.firstQuery, problem.packed);
  walk<1>(
      block.steps,
      [&](int step, int stage) {
        if (block.passesOver(problem, step))
          return;
        startTile<Sizes::step, Sizes::threads>(tiles.keys(stage),
                                               keyRows(problem, k, block.batch, block.head / problem.group),
                                               block.firstKeyOf(step), problem.packed);
      },
      [&](int step, int stage) {
        if (block.skips(problem, step))
          return;
        scores.clear();
        addRowProducts(scores, tiles.queries(), block.warpRow, tiles.keys(stage));
        finishScores<false>(scores, problem, block.batch, block.head, block.firstRow, block.firstKeyOf(step));
        float unused[2 * Sizes::rowTiles];
        raiseLargest(softmax, scores, unused);
        takeExponentials(softmax, scores);
      });
  FSDPC_UNROLL
  for (int r = 0; r < 2 * Sizes::rowTiles; ++r) {
    const float sum = sumOfGroup(softmax.sum[r]);
    const int query = block.firstRow + scores.row(r);
    if (laneInGroup() == 0 && query < problem.queries && !isExactLse(lse[query])) {
      shifts[query] = softmax.largest[r];
      factors[query] = 1.0f / sum;
    }
  }
}

/// Used only with a mask. `mine` is this thread's row. Few blocks have a row that needs more than its lse.
template <class T, int width>
__global__ void __launch_bounds__(ForwardSizes<T, width>::threads)
    attentionShifts(Problem problem, const T *q, const T *k, const float *lse, float *shifts, float *factors) {
  using Sizes = ForwardSizes<T, width>;
  QueryBlock<Sizes> block(problem);
  const std::int64_t first = block.firstStatistic(problem);
  const int end = scalar::min(block.firstQuery + Sizes::rows, problem.queries);
  bool areExact = true; // all threads read all rows, so they agree
  for (int query = block.firstQuery; query < end; ++query)
    areExact = areExact && isExactLse(lse[first + query]);
  const int mine = block.firstQuery + static_cast<int>(threadIdx.x);
  static_assert(Sizes::threads >= Sizes::rows);
  if (mine < end && isExactLse(lse[first + mine])) {
    shifts[first + mine] = shiftFor(lse[first + mine]) * scoreUnit<T>;
    factors[first + mine] = 1.0f;
  }
  if (!areExact && problem.hidesFinitely())
    block.seeAll(problem);
  if (!areExact)
    writeOwnShifts<T, width>(problem, block, q, k, lse + first, shifts + first, factors + first);
}

/// Operands of both kernels; shifts, factors and deltas are [batch, heads, queries].
template <class T>
struct Operands {
  const T *dO, *q, *k, *v;
  const float *shifts;  ///< lse without a mask
  const float *factors; ///< null: all are 1
  const float *deltas;

  /// In the unit of scores. For a query that sees no key, the exponentials are 0, not NaN.
  __device__ float shiftOf(float stored) const { return factors ? stored : shiftFor(stored) * scoreUnit<T>; }
};

/// Shift and delta of a lane's rows; zeros for rows outside.
template <int rows>
struct RowStatistics {
  float shifts[rows], factors[rows], deltas[rows];
};
template <class T, int rowTiles, int columns>
__device__ RowStatistics<2 * rowTiles> statisticsOf(const Sums<T, rowTiles, columns> &sums, const Operands<T> &operands,
                                                    std::int64_t first, int firstRow, int queries) {
  RowStatistics<2 * rowTiles> statistics;
  FSDPC_UNROLL
  for (int r = 0; r < 2 * rowTiles; ++r) {
    const int query = firstRow + sums.row(r);
    const bool exists = query < queries;
    statistics.shifts[r] = exists ? operands.shiftOf(operands.shifts[first + query]) : 0.0f;
    statistics.factors[r] = exists && operands.factors ? operands.factors[first + query] : 1.0f;
    statistics.deltas[r] = exists ? operands.deltas[first + query] : 0.0f;
  }
  return statistics;
}

/// Whether some of these shifts is that of a query that sees no key.
template <class T, int rows>
__device__ bool seesNone(const Problem &problem, const float (&shifts)[rows]) {
  bool any = false;
  FSDPC_UNROLL
  for (int r = 0; r < rows; ++r)
    any = any || problem.seesNone(shifts[r] / scoreUnit<T>);
  return any;
}

template <class T, int width>
__global__ void __launch_bounds__(QuerySizes<T, width>::threads)
    attentionQueryGradients(Problem problem, Operands<T> operands, T *dq) {
  using Sizes = QuerySizes<T, width>;
  const BackwardTiles<T, Sizes> tiles{sharedMemory<T>()};
  QueryBlock<Sizes> block(problem);
  Sums<T, Sizes::rowTiles, width> sums;
  sums.clear();
  const auto statistics = statisticsOf(sums, operands, block.firstStatistic(problem), block.firstRow, problem.queries);
  if (problem.hidesFinitely() && __syncthreads_or(seesNone<T>(problem, statistics.shifts)))
    block.seeAll(problem);
  startTile<Sizes::rows, Sizes::threads>(tiles.first(), queryRows(problem, operands.q, block.batch, block.head),
                                         block.firstQuery, problem.packed);
  startTile<Sizes::rows, Sizes::threads>(tiles.second(), outputRows(problem, operands.dO, block.batch, block.head),
                                         block.firstQuery, problem.packed);
  walk<Sizes::stages>(
      block.steps,
      [&](int step, int stage) {
        block.startKeys(problem, step, operands.k, operands.v, tiles.firstOf(stage), tiles.secondOf(stage));
      },
      [&](int step, int stage) {
        if (block.skips(problem, step))
          return;
        Sums<T, Sizes::rowTiles, Sizes::step> weights, slopes;
        weights.clear();
        addRowProducts(weights, tiles.first(), block.warpRow, tiles.firstOf(stage));
        finishScores<false>(weights, problem, block.batch, block.head, block.firstRow, block.firstKeyOf(step));
        weights.forEach([&](int r, int, float &weight) { weight = exponential<T>(weight - statistics.shifts[r]); });
        if (operands.factors)
          weights.forEach([&](int r, int, float &weight) { weight *= statistics.factors[r]; });
        slopes.clear();
        addRowProducts(slopes, tiles.second(), block.warpRow, tiles.secondOf(stage));
        slopes.forEach([&](int r, int c, float &slope) { slope = weights.at(r, c) * (slope - statistics.deltas[r]); });
        if (problem.softcap > 0) {
          weights.clear();
          addRowProducts(weights, tiles.first(), block.warpRow, tiles.firstOf(stage));
          takeSlopesOfCap(slopes, problem, weights);
        }
        addWeightedRows(sums, slopes, tiles.firstOf(stage), 0);
      });
  sums.forEach([&](int, int, float &sum) { sum *= problem.scale; });
  // Each warp has read only its own rows of the query tile and is done with them, so they hold the result now.
  storeSums(sums, tiles.first(), block.warpRow, 0);
  storeRows<Sizes::warpRows, width>(tiles.first(), block.warpRow, queryRows(problem, dq, block.batch, block.head),
                                    block.firstRow, 0, problem.packed);
}

/// The keys of a block that walks over queries, and this warp's keys among them. The steps visit the heads of q that
/// share the keys in turn. Each head starts at the first step with a query that sees one of the keys.
template <class Sizes>
struct KeyBlock {
  int batch, keyHead, firstHead;
  int firstKey, firstRow; ///< the first key of the block, of the warp
  int warpRow;            ///< the warp's first row in the block's tile
  int firstColumn;        ///< the block's first column of dk and dv
  int skippedSteps, stepsOfHead, steps;

  __device__ explicit KeyBlock(const Problem &problem) {
    const int tiles = tilesOf(problem.keys, Sizes::rows), keyHeads = problem.heads / problem.group;
    const int block = static_cast<int>(blockIdx.x) / Sizes::slices;
    batch = block / tiles / keyHeads;
    keyHead = block / tiles % keyHeads;
    firstHead = keyHead * problem.group;
    firstKey = block % tiles * Sizes::rows;
    warpRow = warpOfBlock() * Sizes::warpRows;
    firstRow = firstKey + warpRow;
    firstColumn = static_cast<int>(blockIdx.x) % Sizes::slices * Sizes::columns;
    // Which queries see none of their keys is known only later; they see all.
    const bool seenByAll = problem.hidesFinitely();
    skippedSteps = seenByAll ? 0 : problem.firstSeen(firstKey, problem.causal) / Sizes::step;
    const int end = seenByAll ? problem.queries : problem.endOfSeen(firstKey + Sizes::rows, problem.queries, false);
    stepsOfHead = scalar::max(tilesOf(end, Sizes::step) - skippedSteps, 0);
    steps = problem.group * stepsOfHead;
  }
  __device__ int headOf(int step) const { return firstHead + step / stepsOfHead; }
  __device__ std::int64_t firstStatistic(const Problem &problem, int step) const {
    return (std::int64_t{batch} * problem.heads + headOf(step)) * problem.queries;
  }
  __device__ int firstQueryOf(int step) const { return (skippedSteps + step % stepsOfHead) * Sizes::step; }
  /// Whether no query of this step sees a key of the block because of documents. The same for all warps.
  __device__ bool passesOver(const Problem &problem, int step) const {
    const int firstQuery = firstQueryOf(step);
    return areInOtherDocuments(problem, batch, {firstKey, firstKey + Sizes::rows},
                               {firstQuery, firstQuery + Sizes::step});
  }
  /// Whether no query of this step sees a key of the warp. `shifts`: of the step's queries, in units of scores.
  template <class T>
  __device__ bool skips(const Problem &problem, int step, const float *shifts) const {
    static_assert(Sizes::step <= warpLanes);
    if (firstRow >= problem.keys)
      return true;
    if (!isHidden(problem, firstQueryOf(step), Sizes::step, firstRow, Sizes::warpRows) && !passesOver(problem, step))
      return false;
    const int lane = static_cast<int>(threadIdx.x) % warpLanes;
    return !problem.hidesFinitely() ||
           __ballot_sync(fullWarp, lane < Sizes::step && problem.seesNone(shifts[lane] / scoreUnit<T>)) == 0;
  }
};

/// Starts to fill a stage with a step's queries, dO, shift and delta; zeros for queries outside.
template <class T, class Sizes>
__device__ void startQueries(const Problem &problem, const Operands<T> &operands, const KeyBlock<Sizes> &block,
                             const BackwardTiles<T, Sizes> &tiles, int step, int stage) {
  // With a finite `hidden`, the shifts tell whether a query sees these keys all the same.
  if (!problem.hidesFinitely() && block.passesOver(problem, step))
    return;
  const int head = block.headOf(step), firstQuery = block.firstQueryOf(step);
  startTile<Sizes::step, Sizes::threads>(tiles.firstOf(stage), queryRows(problem, operands.q, block.batch, head),
                                         firstQuery, problem.packed);
  startTile<Sizes::step, Sizes::threads>(tiles.secondOf(stage), outputRows(problem, operands.dO, block.batch, head),
                                         firstQuery, problem.packed);
  if (const int i = static_cast<int>(threadIdx.x); i < Sizes::step) {
    const bool exists = firstQuery + i < problem.queries;
    const std::int64_t from = block.firstStatistic(problem, step) + (exists ? firstQuery + i : 0);
    startCopy<4>(tiles.shiftOf(stage) + i, operands.shifts + from, exists);
    startCopy<4>(tiles.deltaOf(stage) + i, operands.deltas + from, exists);
  }
  __syncwarp(); // tensor cores need whole warps
}

template <class T, int width>
__global__ void __launch_bounds__(KeySizes<T, width>::threads)
    attentionKeyGradients(Problem problem, Operands<T> operands, T *dk, T *dv) {
  using Sizes = KeySizes<T, width>;
  const BackwardTiles<T, Sizes> tiles{sharedMemory<T>()};
  const KeyBlock<Sizes> block(problem);
  Sums<T, Sizes::rowTiles, Sizes::columns> keySums, valueSums;
  keySums.clear();
  valueSums.clear();
  startTile<Sizes::rows, Sizes::threads>(tiles.first(), keyRows(problem, operands.k, block.batch, block.keyHead),
                                         block.firstKey, problem.packed);
  startTile<Sizes::rows, Sizes::threads>(tiles.second(), valueRows(problem, operands.v, block.batch, block.keyHead),
                                         block.firstKey, problem.packed);
  walk<Sizes::stages>(
      block.steps, [&](int step, int stage) { startQueries(problem, operands, block, tiles, step, stage); },
      [&](int step, int stage) {
        if (block.template skips<T>(problem, step, tiles.shiftOf(stage)))
          return;
        Sums<T, Sizes::rowTiles, Sizes::step> weights, slopes;
        weights.clear();
        addRowProducts(weights, tiles.first(), block.warpRow, tiles.firstOf(stage));
        finishScores<true>(weights, problem, block.batch, block.headOf(step), block.firstRow, block.firstQueryOf(step));
        weights.forEach([&](int, int c, float &weight) {
          weight = exponential<T>(weight - operands.shiftOf(tiles.shiftOf(stage)[weights.column(c)]));
        });
        if (operands.factors)
          weights.forEach([&](int, int c, float &weight) {
            const int query = block.firstQueryOf(step) + weights.column(c);
            weight *= query < problem.queries ? operands.factors[block.firstStatistic(problem, step) + query] : 1.0f;
          });
        addWeightedRows(valueSums, weights, tiles.secondOf(stage), block.firstColumn);
        slopes.clear();
        addRowProducts(slopes, tiles.second(), block.warpRow, tiles.secondOf(stage));
        slopes.forEach([&](int r, int c, float &slope) {
          slope = weights.at(r, c) * (slope - tiles.deltaOf(stage)[slopes.column(c)]);
        });
        if (problem.softcap > 0) {
          weights.clear();
          addRowProducts(weights, tiles.first(), block.warpRow, tiles.firstOf(stage));
          takeSlopesOfCap(slopes, problem, weights);
        }
        addWeightedRows(keySums, slopes, tiles.firstOf(stage), block.firstColumn);
      });
  keySums.forEach([&](int, int, float &sum) { sum *= problem.scale; });
  // Each warp has read only its own rows of the key and value tiles and is done with them, so they hold the results
  // now.
  storeSums(keySums, tiles.first(), block.warpRow, block.firstColumn);
  storeSums(valueSums, tiles.second(), block.warpRow, block.firstColumn);
  storeRows<Sizes::warpRows, Sizes::columns>(tiles.first(), block.warpRow,
                                             keyRows(problem, dk, block.batch, block.keyHead), block.firstRow,
                                             block.firstColumn, problem.packed);
  storeRows<Sizes::warpRows, Sizes::columns>(tiles.second(), block.warpRow,
                                             valueRows(problem, dv, block.batch, block.keyHead), block.firstRow,
                                             block.firstColumn, problem.packed);
}

} // namespace

namespace {

/// Deltas, and with a mask also shifts and factors.
std::int64_t scratchBytes(const AttentionShape &shape, bool hasMask) {
  return scratch_sizes::attentionGradBytes(shape.batch * shape.heads * shape.queries, hasMask);
}

} // namespace

std::int64_t attentionGradScratchBytes(const AttentionShape &shape) { return scratchBytes(shape, true); }

template <class T>
void attentionGrad(const Context &c, const AttentionShape &shape, const T *dO, const T *q, const T *k, const T *v,
                   const T *o, const float *lse, const AttentionMasks &masks, T *dq, T *dk, T *dv,
                   Workspace workspace) {
  const float *const mask = masks.added;
  if (workspace.bytes < scratchBytes(shape, mask != nullptr))
    throw Failure(ExitCode::internal, "attention has less scratch than it needs");
  if (shape.batch * shape.heads == 0)
    return;
  const Problem problem = problemOf<T>(shape, masks, dO, q, k, v, o, dq, dk, dv);
  auto *const deltas = reinterpret_cast<float *>(workspace.data);
  const std::int64_t rows = shape.batch * shape.heads * shape.queries;
  if (rows > 0)
    launch(c, gridFor(c, rows * deltaLanes),
           problem.packed ? attentionDeltas<T, chunkElements<T>> : attentionDeltas<T, 1>, problem, dO, o, deltas);
  float *const shifts = deltas + rows, *const factors = shifts + rows;
  const Operands<T> operands{dO, q, k, v, mask ? shifts : lse, mask ? factors : nullptr, deltas};
  withTileWidth(shape, [&](auto width) {
    using ForShifts = ForwardSizes<T, width()>;
    if (mask)
      launchTiles<ForShifts>(c, shape.batch * shape.heads * tilesOf(problem.queries, ForShifts::rows),
                             attentionShifts<T, width()>, problem, q, k, lse, shifts, factors);
    using ForQueries = QuerySizes<T, width()>;
    launchTiles<ForQueries>(c, shape.batch * shape.heads * tilesOf(problem.queries, ForQueries::rows),
                            attentionQueryGradients<T, width()>, problem, operands, dq);
    using ForKeys = KeySizes<T, width()>;
    launchTiles<ForKeys>(c, shape.batch * headsOfKeys(shape) * tilesOf(problem.keys, ForKeys::rows) * ForKeys::slices,
                         attentionKeyGradients<T, width()>, problem, operands, dk, dv);
  });
}

template void attentionGrad(const Context &, const AttentionShape &, const float *, const float *, const float *,
                            const float *, const float *, const float *, const AttentionMasks &, float *, float *,
                            float *, Workspace);
template void attentionGrad(const Context &, const AttentionShape &, const Bfloat16 *, const Bfloat16 *,
                            const Bfloat16 *, const Bfloat16 *, const Bfloat16 *, const float *, const AttentionMasks &,
                            Bfloat16 *, Bfloat16 *, Bfloat16 *, Workspace);
template void attentionGrad(const Context &, const AttentionShape &, const Float16 *, const Float16 *, const Float16 *,
                            const Float16 *, const Float16 *, const float *, const AttentionMasks &, Float16 *,
                            Float16 *, Float16 *, Workspace);

} // namespace fsdpc::rt
