#include "runtime/cpu/kernels/attention.h"

#include "runtime/common/failure.h"
#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/long_sum.h"
#include "runtime/cpu/kernels/small_gemm.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

// A block of queries is a multiple of the matmul kernel's tile height, and its scores stay in cache for up to a few
// thousand keys.
using scratch_sizes::AttentionGradLayout;
using scratch_sizes::AttentionLayout;
using scratch_sizes::queryBlock;

/// Addresses of one head: element (s, d) is data[s * rowStride + d].
template <class T>
struct Head {
  T *data;
  std::int64_t rowStride;
};

/// Head `head`, counted over the `heads` heads of all samples.
template <class T>
Head<T> headOf(bool sequenceFirst, T *data, std::int64_t sequence, std::int64_t width, std::int64_t heads,
               std::int64_t head) {
  const std::int64_t b = head / heads, h = head % heads;
  if (sequenceFirst)
    return {data + (b * sequence * heads + h) * width, heads * width};
  return {data + head * sequence * width, width};
}
/// A head of q, o or their derivatives.
template <class T>
Head<T> queryHead(const AttentionShape &shape, T *data, std::int64_t width, std::int64_t head) {
  return headOf(shape.sequenceFirst, data, shape.queries, width, shape.heads, head);
}

std::int64_t headsOfKeys(const AttentionShape &shape) { return shape.keyHeads > 0 ? shape.keyHeads : shape.heads; }
/// The number of heads of q that read one head of k.
std::int64_t groupOf(const AttentionShape &shape) {
  return shape.heads / std::max<std::int64_t>(headsOfKeys(shape), 1);
}
/// A head of k, v or their derivatives.
template <class T>
Head<T> keyHead(const AttentionShape &shape, T *data, std::int64_t width, std::int64_t head) {
  return headOf(shape.sequenceFirst, data, shape.keys, width, headsOfKeys(shape), head);
}

/// Keys [begin, end).
struct KeyRange {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// The keys visible to any of `rows` queries from `query` on, if the mask hides none.
KeyRange visibleKeys(const AttentionShape &shape, std::int64_t query, std::int64_t rows) {
  KeyRange keys{0, shape.keys};
  if (shape.window > 0) {
    keys.begin = std::max<std::int64_t>(query - shape.window + 1, 0);
    keys.end = std::min(keys.end, query + rows - 1 + shape.window);
  }
  if (shape.causal)
    keys.end = std::min(keys.end, query + rows);
  return {std::min(keys.begin, shape.keys), std::max(keys.end, std::min(keys.begin, shape.keys))};
}

/// The same in whole panels at its beginning, where packed operands can be entered.
KeyRange keysOfBlock(const AttentionShape &shape, std::int64_t query, std::int64_t rows, bool seesAll) {
  if (seesAll)
    return {0, shape.keys};
  const KeyRange keys = visibleKeys(shape, query, rows);
  return {keys.begin / panelColumns * panelColumns, keys.end};
}

/// row = softcap * tanh(row * scale / softcap); returns through `slopes`, if not null, its products with the
/// derivative.
void capScores(const AttentionShape &shape, std::int64_t count, float *row, float *slopes) {
  const float cap = shape.softcap, factor = shape.scale / shape.softcap;
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j)
    row[j] = scalar::tanh(row[j] * factor);
  if (slopes) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      slopes[j] *= 1 - row[j] * row[j];
  }
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j)
    row[j] *= cap;
}

/// s * scale + mask of some keys of a row, from their first one on. A cap has scaled already.
void scaleScores(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t query, KeyRange keys,
                 float *row) {
  const float scale = shape.softcap > 0 ? 1 : shape.scale;
  const std::int64_t count = keys.count();
  if (mask) {
    const std::int64_t step = shape.maskStrides[3];
    const float *m = mask + head / shape.heads * shape.maskStrides[0] + head % shape.heads * shape.maskStrides[1] +
                     query * shape.maskStrides[2] + keys.begin * step;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      row[j] = row[j] * scale + m[j * step];
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j)
      row[j] *= scale;
  }
}

/// Adds `hidden` to the scores of keys that are not visible, which were finished without a mask if it does not apply.
void hideKeys(const AttentionShape &shape, KeyRange hidden, std::int64_t firstKey, float *row) {
  for (std::int64_t j = hidden.begin; j < hidden.end; ++j) // an infinite score plus -infinity would be NaN
    row[j - firstKey] = shape.hidesFinitely() ? row[j - firstKey] + shape.hidden : shape.hidden;
}

/// s * scale + mask of one row, + hidden where the key is not visible. row[0] is the score of key keys.begin. `slopes`
/// are multiplied with the derivative of the cap, if there is one.
void finishScores(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t query, KeyRange keys,
                  float *row, float *slopes = nullptr) {
  if (shape.softcap > 0)
    capScores(shape, keys.count(), row, slopes);
  const KeyRange visible = visibleKeys(shape, query, 1);
  const KeyRange before{keys.begin, std::clamp(visible.begin, keys.begin, keys.end)};
  const KeyRange after{std::clamp(visible.end, before.end, keys.end), keys.end};
  const float *const maskOfHidden = shape.masksHidden ? mask : nullptr;
  const auto scaled = [&](KeyRange part, const float *m) {
    scaleScores(shape, m, head, query, part, row + part.begin - keys.begin);
  };
  scaled(before, maskOfHidden);
  scaled({before.end, after.begin}, mask);
  scaled(after, maskOfHidden);
  hideKeys(shape, before, keys.begin, row);
  hideKeys(shape, after, keys.begin, row);
}

float maximumOf(const float *row, std::int64_t count) {
  float largest = -scalar::infinity;
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < count; ++j)
    largest = row[j] > largest ? row[j] : largest;
  return largest;
}

/// A query without visible keys has a maximum (and lse) of -infinity. It is shifted by 0 instead, so that its
/// exponentials are 0, not NaN.
float finite(float shift) { return shift == -scalar::infinity ? 0 : shift; }

/// row = exp(row - shift); returns the sum.
float exponentials(float *row, std::int64_t count, float shift) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j)
    row[j] = scalar::exp(row[j] - shift);
  return static_cast<float>(sumOf(count, [row](std::int64_t j) { return row[j]; }));
}

float dot(const float *a, const float *b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < count; ++j)
    sum += a[j] * b[j];
  return sum;
}

AttentionLayout layoutOf(const AttentionShape &s) { return {s.keys, s.queryWidth, s.valueWidth}; }
AttentionGradLayout gradLayoutOf(const AttentionShape &s) { return {s.keys, s.queryWidth, s.valueWidth}; }

/// The scores [rows, seen] of a block of queries. Returns whether a query sees none of these keys, so that keys that
/// causal and window hide count for it.
bool blockScores(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t begin,
                 std::int64_t rows, KeyRange seen, const float *queries, std::int64_t rowStride,
                 const float *packedKeys, float *scores) {
  const std::int64_t stride = paddedColumns(shape.keys);
  // Complete panels. Columns beyond those seen are never read.
  smallGemm(rows, paddedColumns(seen.count()), shape.queryWidth, queries, rowStride, 1,
            packedKeys + seen.begin * shape.queryWidth, scores, stride, false);
  bool isBlind = false;
  for (std::int64_t i = 0; i < rows; ++i) {
    float *const row = scores + i * stride;
    finishScores(shape, mask, head, begin + i, seen, row);
    isBlind = isBlind || (shape.hidesFinitely() && shape.seesNone(maximumOf(row, seen.count())));
  }
  return isBlind;
}

void forwardHead(const AttentionShape &shape, std::int64_t head, const float *q, const float *k, const float *v,
                 const float *mask, float *o, float *lse, float *scratchFloats) {
  const AttentionLayout layout = layoutOf(shape);
  float *const packedKeys = scratchFloats;
  float *const packedValues = scratchFloats + layout.values;
  float *const scores = scratchFloats + layout.scores;
  const std::int64_t scoreStride = paddedColumns(shape.keys);
  const auto queries = queryHead(shape, q, shape.queryWidth, head);
  const auto keys = keyHead(shape, k, shape.queryWidth, head / groupOf(shape));
  const auto values = keyHead(shape, v, shape.valueWidth, head / groupOf(shape));
  const auto outputs = queryHead(shape, o, shape.valueWidth, head);
  packColumns(keys.data, keys.rowStride, shape.queryWidth, shape.keys, packedKeys);
  packRows(values.data, values.rowStride, shape.keys, shape.valueWidth, packedValues);

  for (std::int64_t begin = 0; begin < shape.queries; begin += queryBlock) {
    const std::int64_t rows = std::min(queryBlock, shape.queries - begin);
    const float *const qBlock = queries.data + begin * queries.rowStride;
    KeyRange seen = keysOfBlock(shape, begin, rows, false);
    if (blockScores(shape, mask, head, begin, rows, seen, qBlock, queries.rowStride, packedKeys, scores)) {
      seen = keysOfBlock(shape, begin, rows, true);
      blockScores(shape, mask, head, begin, rows, seen, qBlock, queries.rowStride, packedKeys, scores);
    }
    float factors[queryBlock];
    for (std::int64_t i = 0; i < rows; ++i) {
      float *const row = scores + i * scoreStride;
      const float largest = maximumOf(row, seen.count());
      const float sum = exponentials(row, seen.count(), finite(largest));
      lse[head * shape.queries + begin + i] = largest + std::log(sum);
      factors[i] = sum == 0 ? 0 : 1 / sum;
    }
    // Panels of v hold all keys, but a block reads only those that it sees. So it processes one panel of columns at a
    // time.
    for (std::int64_t column = 0; column < shape.valueWidth; column += panelColumns) {
      const std::int64_t width = std::min(panelColumns, shape.valueWidth - column);
      smallGemm(rows, width, seen.count(), scores, scoreStride, 1,
                packedValues + column * shape.keys + seen.begin * panelColumns,
                outputs.data + begin * outputs.rowStride + column, outputs.rowStride, false);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      float *const row = outputs.data + (begin + i) * outputs.rowStride;
#pragma omp simd
      for (std::int64_t d = 0; d < shape.valueWidth; ++d)
        row[d] *= factors[i];
    }
  }
}

/// Both rows are proportional to the exponentials in p. Scales them so that the exponentials sum to 1.
void divideBySum(float *p, float *ds, std::int64_t count) {
  const float sum = static_cast<float>(sumOf(count, [p](std::int64_t j) { return p[j]; }));
  for (std::int64_t j = 0; j < count; ++j) {
    p[j] /= sum;
    ds[j] /= sum;
  }
}

/// scores <- p, slopes <- scale * ds, both [rows, seen].
void softmaxGradients(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t begin,
                      std::int64_t rows, KeyRange seen, const float *lse, const float *deltas, float *scores,
                      float *slopes) {
  const std::int64_t stride = paddedColumns(shape.keys);
  for (std::int64_t i = 0; i < rows; ++i) {
    float *const p = scores + i * stride;
    float *const ds = slopes + i * stride;
    const float shift = finite(lse[i]), scale = shape.scale;
    float delta = deltas[i];
    if (shape.softcap > 0) { // its derivative applies to the difference
      for (std::int64_t j = 0; j < seen.count(); ++j)
        ds[j] -= delta;
      delta = 0;
    }
    finishScores(shape, mask, head, begin + i, seen, p, ds);
#pragma omp simd
    for (std::int64_t j = 0; j < seen.count(); ++j) {
      p[j] = scalar::exp(p[j] - shift);
      ds[j] = p[j] * (ds[j] - delta) * scale;
    }
    if (std::abs(shift) > largestExactLse)
      divideBySum(p, ds, seen.count());
  }
}

struct BackwardOperands {
  const float *dO, *q, *k, *v, *o, *lse, *mask;
  float *dq, *dk, *dv;
};

/// Packs the operands that all queries of the group read from k and v.
void packKeys(const AttentionShape &shape, const BackwardOperands &operands, std::int64_t head, float *scratchFloats) {
  const AttentionGradLayout layout = gradLayoutOf(shape);
  const auto keys = keyHead(shape, operands.k, shape.queryWidth, head);
  const auto values = keyHead(shape, operands.v, shape.valueWidth, head);
  packColumns(keys.data, keys.rowStride, shape.queryWidth, shape.keys, scratchFloats);
  packRows(keys.data, keys.rowStride, shape.keys, shape.queryWidth, scratchFloats + layout.keyRows);
  packColumns(values.data, values.rowStride, shape.valueWidth, shape.keys, scratchFloats + layout.values);
}

void clearKeyGradients(const AttentionShape &shape, const BackwardOperands &operands, std::int64_t head) {
  const auto dKeys = keyHead(shape, operands.dk, shape.queryWidth, head);
  const auto dValues = keyHead(shape, operands.dv, shape.valueWidth, head);
  for (std::int64_t j = 0; j < shape.keys; ++j) {
    std::memset(dKeys.data + j * dKeys.rowStride, 0, sizeof(float) * shape.queryWidth);
    std::memset(dValues.data + j * dValues.rowStride, 0, sizeof(float) * shape.valueWidth);
  }
}

/// Computes dq of one head of q, and adds its part of dk and dv.
void backwardHead(const AttentionShape &shape, const BackwardOperands &operands, std::int64_t head,
                  float *scratchFloats) {
  const AttentionGradLayout layout = gradLayoutOf(shape);
  float *const packedKeys = scratchFloats;                     // k^T, for scores
  float *const packedKeyRows = scratchFloats + layout.keyRows; // k, for dq
  float *const packedValues = scratchFloats + layout.values;   // v^T, for dp
  float *const packedQueries = scratchFloats + layout.queries;
  float *const packedOutputs = scratchFloats + layout.outputs;
  float *const scores = scratchFloats + layout.scores;
  float *const slopes = scratchFloats + layout.slopes;
  const std::int64_t scoreStride = paddedColumns(shape.keys);
  const std::int64_t group = groupOf(shape);
  const auto queries = queryHead(shape, operands.q, shape.queryWidth, head);
  const auto outputs = queryHead(shape, operands.o, shape.valueWidth, head);
  const auto dOutputs = queryHead(shape, operands.dO, shape.valueWidth, head);
  const auto dQueries = queryHead(shape, operands.dq, shape.queryWidth, head);
  const auto dKeys = keyHead(shape, operands.dk, shape.queryWidth, head / group);
  const auto dValues = keyHead(shape, operands.dv, shape.valueWidth, head / group);

  const std::int64_t blocks = (shape.queries + queryBlock - 1) / queryBlock;
  for (std::int64_t block = blocks - 1; block >= 0; --block) {
    const std::int64_t begin = block * queryBlock;
    const std::int64_t rows = std::min(queryBlock, shape.queries - begin);
    const float *const blockLse = operands.lse + head * shape.queries + begin;
    const bool isBlind = std::any_of(blockLse, blockLse + rows, [&](float lse) { return shape.seesNone(lse); });
    const KeyRange seen = keysOfBlock(shape, begin, rows, isBlind);
    const float *const qBlock = queries.data + begin * queries.rowStride;
    const float *const dOBlock = dOutputs.data + begin * dOutputs.rowStride;
    float deltas[queryBlock];
    for (std::int64_t i = 0; i < rows; ++i)
      deltas[i] =
          dot(dOBlock + i * dOutputs.rowStride, outputs.data + (begin + i) * outputs.rowStride, shape.valueWidth);
    // Complete panels. Columns beyond `seen` are never read.
    const std::int64_t columns = paddedColumns(seen.count());
    smallGemm(rows, columns, shape.queryWidth, qBlock, queries.rowStride, 1, packedKeys + seen.begin * shape.queryWidth,
              scores, scoreStride, false);
    smallGemm(rows, columns, shape.valueWidth, dOBlock, dOutputs.rowStride, 1,
              packedValues + seen.begin * shape.valueWidth, slopes, scoreStride, false);
    softmaxGradients(shape, operands.mask, head, begin, rows, seen, blockLse, deltas, scores, slopes);

    for (std::int64_t column = 0; column < shape.queryWidth; column += panelColumns) {
      const std::int64_t width = std::min(panelColumns, shape.queryWidth - column);
      smallGemm(rows, width, seen.count(), slopes, scoreStride, 1,
                packedKeyRows + column * shape.keys + seen.begin * panelColumns,
                dQueries.data + begin * dQueries.rowStride + column, dQueries.rowStride, false);
    }
    packRows(qBlock, queries.rowStride, rows, shape.queryWidth, packedQueries);
    packRows(dOBlock, dOutputs.rowStride, rows, shape.valueWidth, packedOutputs);
    smallGemm(seen.count(), shape.queryWidth, rows, slopes, 1, scoreStride, packedQueries,
              dKeys.data + seen.begin * dKeys.rowStride, dKeys.rowStride, true);
    smallGemm(seen.count(), shape.valueWidth, rows, scores, 1, scoreStride, packedOutputs,
              dValues.data + seen.begin * dValues.rowStride, dValues.rowStride, true);
  }
}

/// Calls run(head, scratch of this part) for all heads, in as many parts as there are threads with scratch.
template <class Run>
void forEachHead(const Context &c, std::int64_t heads, std::int64_t scratchBytes, Workspace workspace, const Run &run) {
  const std::int64_t parts =
      std::min<std::int64_t>({c.threads, heads, workspace.bytes / std::max<std::int64_t>(scratchBytes, 1)});
  if (parts < 1 && heads > 0)
    throw Failure(ExitCode::internal, "attention has less scratch than it needs");
  parallelFor(c, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      float *const scratchFloats = reinterpret_cast<float *>(workspace.data + part * scratchBytes);
      for (std::int64_t head = heads * part / parts; head < heads * (part + 1) / parts; ++head)
        run(head, scratchFloats);
    }
  });
}

} // namespace

std::int64_t attentionScratchBytes(const AttentionShape &shape) { return layoutOf(shape).size * 4; }
std::int64_t attentionGradScratchBytes(const AttentionShape &shape) { return gradLayoutOf(shape).size * 4; }

void attention(const Context &c, const AttentionShape &shape, const float *q, const float *k, const float *v,
               const float *mask, float *o, float *lse, Workspace workspace) {
  const auto forward = [&](std::int64_t head, float *scratchFloats) {
    forwardHead(shape, head, q, k, v, mask, o, lse, scratchFloats);
  };
  forEachHead(c, shape.batch * shape.heads, attentionScratchBytes(shape), workspace, forward);
}

void attentionGrad(const Context &c, const AttentionShape &shape, const float *dO, const float *q, const float *k,
                   const float *v, const float *o, const float *lse, const float *mask, float *dq, float *dk, float *dv,
                   Workspace workspace) {
  const BackwardOperands operands{dO, q, k, v, o, lse, mask, dq, dk, dv};
  const std::int64_t group = groupOf(shape);
  const auto backward = [&](std::int64_t keyHead, float *scratchFloats) {
    packKeys(shape, operands, keyHead, scratchFloats);
    clearKeyGradients(shape, operands, keyHead);
    for (std::int64_t head = keyHead * group; head < (keyHead + 1) * group; ++head)
      backwardHead(shape, operands, head, scratchFloats);
  };
  forEachHead(c, shape.batch * headsOfKeys(shape), attentionGradScratchBytes(shape), workspace, backward);
}

} // namespace fsdpc::rt
