// Code shared by attention forward and backward, in addition to tiles: the operands' addresses, the definition of a
// score, the walk over tiles.
//
// Scores are kept in the unit in which the exponential is cheapest. On tensor cores exponentials cost as much as
// products, so there a score is in units of ln 2 and exp is one instruction. float keeps natural units and the accurate
// function.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/kernel_shapes.h"
#include "runtime/cuda/kernels/attention_tiles.h"

namespace fsdpc::rt::flash {

/// AttentionShape in the form that kernels use.
struct Problem {
  int batch, heads, group; ///< group: heads of q per head of k and v
  int queries, keys, queryWidth, valueWidth;
  float scale;
  bool causal, sequenceFirst;
  bool packed; ///< all operands' rows consist of aligned chunks
  std::int64_t maskStrides[4], secondMaskStrides[4];
  const float *mask, *secondMask; ///< null: none; both or the first
  const std::int64_t *documents;  ///< null: none
  std::int64_t documentsStride;
  int window;   ///< 0: none
  float hidden; ///< AttentionShape::hidden
  bool masksHidden;
  float softcap;

  __device__ bool hidesFinitely() const { return hidden > -scalar::infinity; }
  /// For the largest score of a query, or its lse, in natural units: AttentionShape::seesNone.
  __device__ bool seesNone(float largest) const { return hidesFinitely() && largest <= hidden / 2; }
  /// Of a sample; null without documents.
  __device__ const std::int64_t *documentsOf(int sample) const {
    return documents ? documents + sample * documentsStride : nullptr;
  }
  /// Whether causal and window leave the key to the query.
  __device__ bool isVisible(int query, int key) const {
    return !(causal && key > query) && (window == 0 || (key > query - window && query > key - window));
  }
  /// Of the other sequence, of `count` elements: the first that a block from `begin` on sees, or is seen by, and the
  /// end of those of a block up to `end`. `isCut`: causal hides those before, or after, the diagonal.
  __device__ int firstSeen(int begin, bool isCut) const {
    return isCut ? begin : window > 0 ? scalar::max(begin - window + 1, 0) : 0;
  }
  __device__ int endOfSeen(int end, int count, bool isCut) const {
    return isCut ? scalar::min(end, count) : window > 0 ? scalar::min(end - 1 + window, count) : count;
  }
};

/// Addresses of all heads of one operand: rows [batch, heads, count, width], or [batch, count, heads, width].
template <class T>
__device__ Rows<T> rowsOf(const Problem &problem, T *data, int heads, int batch, int head, int count, int width) {
  if (problem.sequenceFirst)
    return {data + (std::int64_t{batch} * count * heads + head) * width, std::int64_t{heads} * width, count, width};
  return {data + (std::int64_t{batch} * heads + head) * count * width, width, count, width};
}
/// Of a head of q, its gradient, ...
template <class T>
__device__ Rows<T> queryRows(const Problem &p, T *data, int batch, int head) {
  return rowsOf(p, data, p.heads, batch, head, p.queries, p.queryWidth);
}
template <class T>
__device__ Rows<T> outputRows(const Problem &p, T *data, int batch, int head) {
  return rowsOf(p, data, p.heads, batch, head, p.queries, p.valueWidth);
}
/// `head` is a head of k and v.
template <class T>
__device__ Rows<T> keyRows(const Problem &p, T *data, int batch, int head) {
  return rowsOf(p, data, p.heads / p.group, batch, head, p.keys, p.queryWidth);
}
template <class T>
__device__ Rows<T> valueRows(const Problem &p, T *data, int batch, int head) {
  return rowsOf(p, data, p.heads / p.group, batch, head, p.keys, p.valueWidth);
}

/// Scores per natural unit.
template <class T>
inline constexpr float scoreUnit = onTensorCores<T> ? 1.44269504088896341f : 1.0f;

/// A finite number stays finite, including the lowest float: a row of such scores weights all its keys equally.
template <class T>
__device__ float inScoreUnits(float added) {
  const float score = added * scoreUnit<T>;
  return score == -scalar::infinity && added != -scalar::infinity ? scalar::lowest : score;
}

/// exp of a score, or of a difference of scores
template <class T>
__device__ float exponential(float score) {
  if constexpr (onTensorCores<T>)
    return approximateExp2(score);
  else
    return expf(score);
}

/// Whether some of these scores may be unseen, or are outside the sequences.
__device__ inline bool isPartial(const Problem &problem, int firstQuery, int queries, int firstKey, int keys) {
  return problem.documents || firstQuery + queries > problem.queries || firstKey + keys > problem.keys ||
         !problem.isVisible(firstQuery, firstKey + keys - 1) || !problem.isVisible(firstQuery + queries - 1, firstKey);
}

/// Whether causal and window hide all of these scores. Sequences may end before.
__device__ inline bool isHidden(const Problem &problem, int firstQuery, int queries, int firstKey, int keys) {
  return (problem.causal && firstKey >= firstQuery + queries) ||
         (problem.window > 0 && (firstKey + keys <= firstQuery - problem.window + 1 ||
                                 firstQuery + queries <= firstKey - problem.window + 1));
}

/// Positions [begin, end) of a sequence, which may end before.
struct Positions {
  int begin, end;
};

/// Whether the smallest to the largest document of `own` leaves out those of all `others`, so that no two of them see
/// each other. Called by whole warps. Reads all documents again at each call, so that attention without documents needs
/// no registers for them.
__device__ inline bool areInOtherDocuments(const Problem &problem, int sample, Positions own, Positions others) {
  const std::int64_t *const documents = problem.documentsOf(sample);
  if (!documents)
    return false;
  const int lane = static_cast<int>(threadIdx.x) % warpLanes, count = problem.keys;
  std::int64_t lowest = INT64_MAX, highest = INT64_MIN;
  for (int i = own.begin + lane; i < scalar::min(own.end, count); i += warpLanes) {
    lowest = scalar::min(lowest, documents[i]);
    highest = scalar::max(highest, documents[i]);
  }
  for (int lanes = warpLanes / 2; lanes > 0; lanes /= 2) {
    lowest = scalar::min(lowest, __shfl_xor_sync(fullWarp, lowest, lanes));
    highest = scalar::max(highest, __shfl_xor_sync(fullWarp, highest, lanes));
  }
  bool any = false;
  for (int i = others.begin + lane; i < scalar::min(others.end, count); i += warpLanes)
    any = any || (documents[i] >= lowest && documents[i] <= highest);
  return __ballot_sync(fullWarp, any) == 0;
}

/// Null without a mask.
__device__ inline const float *maskOfHead(const float *mask, const std::int64_t *strides, int batch, int head) {
  return mask ? mask + batch * strides[0] + head * strides[1] : nullptr;
}

/// Turns products of queries and keys into scores, + hidden where the key is not seen. Rows are queries and columns
/// keys, or the reverse with `keysAreRows`; they start at firstRow, firstColumn.
template <bool keysAreRows, class T, int rowTiles, int columns>
__device__ void finishScores(Sums<T, rowTiles, columns> &scores, const Problem &problem, int batch, int head,
                             int firstRow, int firstColumn) {
  const bool isCapped = problem.softcap > 0;
  const float scale = isCapped ? problem.scale / problem.softcap : problem.scale * scoreUnit<T>;
  const bool isFull = keysAreRows ? !isPartial(problem, firstColumn, columns, firstRow, 16 * rowTiles)
                                  : !isPartial(problem, firstRow, 16 * rowTiles, firstColumn, columns);
  scores.forEach([&](int, int, float &score) { score *= scale; });
  if (isCapped) {
    const float cap = problem.softcap * scoreUnit<T>;
    scores.forEach([&](int, int, float &score) { score = cap * tanhf(score); });
  }
  if (isFull && !problem.mask)
    return;
  const float *const mask = maskOfHead(problem.mask, problem.maskStrides, batch, head);
  const float *const secondMask = maskOfHead(problem.secondMask, problem.secondMaskStrides, batch, head);
  const std::int64_t *const documents = problem.documentsOf(batch);
  scores.forEach([&](int r, int c, float &score) {
    const int row = firstRow + scores.row(r), column = firstColumn + scores.column(c);
    const int query = keysAreRows ? column : row, key = keysAreRows ? row : column;
    const bool exists = query < problem.queries && key < problem.keys;
    const bool isVisible =
        exists && problem.isVisible(query, key) && (!documents || documents[query] == documents[key]);
    if (!exists || (!isVisible && !problem.hidesFinitely())) {
      score = -scalar::infinity;
      return;
    }
    if (mask && (isVisible || problem.masksHidden)) {
      score += inScoreUnits<T>(mask[query * problem.maskStrides[2] + key * problem.maskStrides[3]]);
      if (secondMask)
        score += inScoreUnits<T>(secondMask[query * problem.secondMaskStrides[2] + key * problem.secondMaskStrides[3]]);
    }
    if (!isVisible)
      score += inScoreUnits<T>(problem.hidden);
  });
  __syncwarp(); // tensor cores need whole warps
}

/// Multiplies slopes with the derivative of the cap. `products`: of queries and keys.
template <class T, int rowTiles, int columns>
__device__ void takeSlopesOfCap(Sums<T, rowTiles, columns> &slopes, const Problem &problem,
                                const Sums<T, rowTiles, columns> &products) {
  const float scale = problem.scale / problem.softcap;
  slopes.forEach([&](int r, int c, float &slope) {
    const float bounded = tanhf(products.at(r, c) * scale);
    slope *= 1 - bounded * bounded;
  });
  __syncwarp(); // tensor cores need whole warps
}

/// The steps of a block along the other sequence. load(step, stage) starts copies to the tiles of that stage, and
/// compute(step, stage) reads them there. With two stages a step's copies overlap with the compute of the step before.
/// Copies that the block started earlier are also complete when the first step computes. On return no copy is in flight
/// and all warps are done.
template <int stages, class Load, class Compute>
__device__ void walk(int steps, const Load &load, const Compute &compute) {
  static_assert(stages == 1 || stages == 2);
  if (stages == 2 && steps > 0)
    load(0, 0);
  FSDPC_ROLL
  for (int step = 0; step < steps; ++step) {
    if (stages == 1)
      load(step, 0);
    waitForCopies();
    __syncthreads(); // with two stages, also waits until all warps have computed the step before
    if (stages == 2 && step + 1 < steps)
      load(step + 1, (step + 1) % 2);
    compute(step, step % stages);
    if (stages == 1)
      __syncthreads();
  }
  waitForCopies();
  __syncthreads();
}

/// The queries of a block that walks over keys, and this warp's queries among them.
template <class Sizes>
struct QueryBlock {
  int batch, head;
  int firstQuery, firstRow; ///< the first query of the block, the first row of the warp
  int warpRow;              ///< the warp's first row in the block's tile
  int firstStep, steps;     ///< of those with keys that the queries see
  bool seesAll = false;     ///< as if nothing were hidden

  __device__ explicit QueryBlock(const Problem &problem) {
    const int tiles = tilesOf(problem.queries, Sizes::rows), block = static_cast<int>(blockIdx.x);
    batch = block / tiles / problem.heads;
    head = block / tiles % problem.heads;
    // The last tile of a causal head has the most work, so it is first.
    firstQuery = (tiles - 1 - block % tiles) * Sizes::rows;
    warpRow = warpOfBlock() * Sizes::warpRows;
    firstRow = firstQuery + warpRow;
    firstStep = problem.firstSeen(firstQuery, false) / Sizes::step;
    const int end = tilesOf(problem.endOfSeen(firstQuery + Sizes::rows, problem.keys, problem.causal), Sizes::step);
    steps = scalar::max(end - firstStep, 0);
  }
  /// From now on for all keys: a query sees none of those that it should.
  __device__ void seeAll(const Problem &problem) {
    seesAll = true;
    firstStep = 0;
    steps = tilesOf(problem.keys, Sizes::step);
  }
  __device__ int firstKeyOf(int step) const { return (firstStep + step) * Sizes::step; }
  /// Whether the block sees no key of this step because of documents. The same for all warps.
  __device__ bool passesOver(const Problem &problem, int step) const {
    const int firstKey = firstKeyOf(step);
    return !seesAll && areInOtherDocuments(problem, batch, {firstQuery, firstQuery + Sizes::rows},
                                           {firstKey, firstKey + Sizes::step});
  }
  /// Whether the warp sees no key of this step.
  __device__ bool skips(const Problem &problem, int step) const {
    return firstRow >= problem.queries ||
           (!seesAll && isHidden(problem, firstRow, Sizes::warpRows, firstKeyOf(step), Sizes::step)) ||
           passesOver(problem, step);
  }
  __device__ std::int64_t firstStatistic(const Problem &problem) const {
    return (std::int64_t{batch} * problem.heads + head) * problem.queries;
  }
  template <class T, int width>
  __device__ void startKeys(const Problem &problem, int step, const T *k, const T *v, const Tile<T, width> &keys,
                            const Tile<T, width> &values) const {
    if (passesOver(problem, step))
      return;
    startTile<Sizes::step, Sizes::threads>(keys, keyRows(problem, k, batch, head / problem.group), firstKeyOf(step),
                                           problem.packed);
    startTile<Sizes::step, Sizes::threads>(values, valueRows(problem, v, batch, head / problem.group), firstKeyOf(step),
                                           problem.packed);
  }
};

// ---- host

inline int headsOfKeys(const AttentionShape &shape) {
  return static_cast<int>(shape.keyHeads > 0 ? shape.keyHeads : shape.heads);
}

template <class T, class... Operands>
Problem problemOf(const AttentionShape &shape, const AttentionMasks &masks, const Operands *...operands) {
  if (shape.heads % headsOfKeys(shape) != 0)
    throw Failure(ExitCode::internal, "attention has heads that share no head of the keys");
  const bool packed = shape.queryWidth % chunkElements<T> == 0 && shape.valueWidth % chunkElements<T> == 0 &&
                      ((reinterpret_cast<std::uintptr_t>(operands) % 16 == 0) && ...);
  Problem problem{static_cast<int>(shape.batch),
                  static_cast<int>(shape.heads),
                  static_cast<int>(shape.heads) / headsOfKeys(shape),
                  static_cast<int>(shape.queries),
                  static_cast<int>(shape.keys),
                  static_cast<int>(shape.queryWidth),
                  static_cast<int>(shape.valueWidth),
                  shape.scale,
                  shape.causal,
                  shape.sequenceFirst,
                  packed,
                  {},
                  {},
                  masks.added,
                  masks.alsoAdded,
                  masks.documents,
                  shape.documentsStride,
                  static_cast<int>(std::min<std::int64_t>(shape.window, std::numeric_limits<int>::max() / 2)),
                  shape.hidden,
                  shape.masksHidden,
                  shape.softcap};
  std::copy_n(shape.maskStrides, 4, problem.maskStrides);
  std::copy_n(shape.secondMaskStrides, 4, problem.secondMaskStrides);
  return problem;
}

/// Calls start(std::integral_constant<int, width>{}) with the tile width for these heads.
template <class Start>
void withTileWidth(const AttentionShape &shape, Start start) {
  const std::int64_t width = std::max(shape.queryWidth, shape.valueWidth);
  if (width <= 32)
    start(std::integral_constant<int, 32>{});
  else if (width <= 64)
    start(std::integral_constant<int, 64>{});
  else if (width <= 96)
    start(std::integral_constant<int, 96>{});
  else if (width <= 128)
    start(std::integral_constant<int, 128>{});
  else if (width <= 256)
    start(std::integral_constant<int, 256>{});
  else
    throw Failure(ExitCode::internal, "attention of heads wider than 256");
}

/// One block of `Sizes::threads` for each tile of each head.
template <class Sizes, class... Parameters, class... Arguments>
void launchTiles(const Context &c, std::int64_t blocks, void (*kernel)(Parameters...), Arguments &&...arguments) {
  static_assert(Sizes::sharedBytes <= maxSharedBytes);
  if (blocks == 0)
    return;
  if (Sizes::sharedBytes > 48 * 1024)
    checkCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Sizes::sharedBytes),
              "shared memory of attention");
  launch(c, Grid{dim3(static_cast<unsigned>(blocks)), dim3(Sizes::threads), Sizes::sharedBytes}, kernel,
         std::forward<Arguments>(arguments)...);
}

} // namespace fsdpc::rt::flash
