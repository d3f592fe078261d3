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

/// The number of keys visible to any query below `queryEnd`.
std::int64_t visibleKeys(const AttentionShape &shape, std::int64_t queryEnd) {
  return shape.causal ? std::min(shape.keys, queryEnd) : shape.keys;
}

/// s * scale + mask of one row, -infinity where the key is not visible.
void finishScores(const AttentionShape &shape, const float *mask, std::int64_t head, std::int64_t query,
                  std::int64_t keys, float *row) {
  const std::int64_t visible = shape.causal ? std::min(keys, query + 1) : keys;
  const float scale = shape.scale;
  if (mask) {
    const float *m = mask + head / shape.heads * shape.maskStrides[0] + head % shape.heads * shape.maskStrides[1] +
                     query * shape.maskStrides[2];
    const std::int64_t step = shape.maskStrides[3];
#pragma omp simd
    for (std::int64_t j = 0; j < visible; ++j)
      row[j] = row[j] * scale + m[j * step];
  } else {
#pragma omp simd
    for (std::int64_t j = 0; j < visible; ++j)
      row[j] *= scale;
  }
  for (std::int64_t j = visible; j < keys; ++j)
    row[j] = -scalar::infinity;
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
    const std::int64_t seen = visibleKeys(shape, begin + rows);
    // Complete panels. Columns beyond `seen` are never read.
    smallGemm(rows, paddedColumns(seen), shape.queryWidth, queries.data + begin * queries.rowStride, queries.rowStride,
              1, packedKeys, scores, scoreStride, false);
    float factors[queryBlock];
    for (std::int64_t i = 0; i < rows; ++i) {
      float *const row = scores + i * scoreStride;
      finishScores(shape, mask, head, begin + i, seen, row);
      const float largest = maximumOf(row, seen);
      const float sum = exponentials(row, seen, finite(largest));
      lse[head * shape.queries + begin + i] = largest + std::log(sum);
      factors[i] = sum == 0 ? 0 : 1 / sum;
    }
    // Panels of v hold all keys, but a causal block reads only the first `seen`. So it processes one panel of columns
    // at a time.
    for (std::int64_t column = 0; column < shape.valueWidth; column += panelColumns) {
      const std::int64_t width = std::min(panelColumns, shape.valueWidth - column);
      smallGemm(rows, width, seen, scores, scoreStride, 1, packedValues + column * shape.keys,
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
                      std::int64_t rows, std::int64_t seen, const float *lse, const float *deltas, float *scores,
                      float *slopes) {
  const std::int64_t stride = paddedColumns(shape.keys);
  for (std::int64_t i = 0; i < rows; ++i) {
    float *const p = scores + i * stride;
    float *const ds = slopes + i * stride;
    finishScores(shape, mask, head, begin + i, seen, p);
    const float shift = finite(lse[i]), delta = deltas[i], scale = shape.scale;
#pragma omp simd
    for (std::int64_t j = 0; j < seen; ++j) {
      p[j] = scalar::exp(p[j] - shift);
      ds[j] = p[j] * (ds[j] - delta) * scale;
    }
    if (std::abs(shift) > largestExactLse)
      divideBySum(p, ds, seen);
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

/// Computes dq of one head of q, and its part of dk and dv. The first head of a group overwrites dk and dv, the others
/// add.
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
  const bool isFirst = head % group == 0;
  const auto queries = queryHead(shape, operands.q, shape.queryWidth, head);
  const auto outputs = queryHead(shape, operands.o, shape.valueWidth, head);
  const auto dOutputs = queryHead(shape, operands.dO, shape.valueWidth, head);
  const auto dQueries = queryHead(shape, operands.dq, shape.queryWidth, head);
  const auto dKeys = keyHead(shape, operands.dk, shape.queryWidth, head / group);
  const auto dValues = keyHead(shape, operands.dv, shape.valueWidth, head / group);

  // From the last block to the first: the first block processed sees every key that any block sees, and overwrites dk
  // and dv.
  const std::int64_t seenByAny = visibleKeys(shape, shape.queries);
  for (std::int64_t j = seenByAny; isFirst && j < shape.keys; ++j) {
    std::memset(dKeys.data + j * dKeys.rowStride, 0, sizeof(float) * shape.queryWidth);
    std::memset(dValues.data + j * dValues.rowStride, 0, sizeof(float) * shape.valueWidth);
  }
  const std::int64_t blocks = (shape.queries + queryBlock - 1) / queryBlock;
  for (std::int64_t block = blocks - 1; block >= 0; --block) {
    const std::int64_t begin = block * queryBlock;
    const std::int64_t rows = std::min(queryBlock, shape.queries - begin);
    const std::int64_t seen = visibleKeys(shape, begin + rows);
    const bool accumulate = !isFirst || block != blocks - 1;
    const float *const qBlock = queries.data + begin * queries.rowStride;
    const float *const dOBlock = dOutputs.data + begin * dOutputs.rowStride;
    float deltas[queryBlock];
    for (std::int64_t i = 0; i < rows; ++i)
      deltas[i] =
          dot(dOBlock + i * dOutputs.rowStride, outputs.data + (begin + i) * outputs.rowStride, shape.valueWidth);
    // Complete panels. Columns beyond `seen` are never read.
    const std::int64_t columns = paddedColumns(seen);
    smallGemm(rows, columns, shape.queryWidth, qBlock, queries.rowStride, 1, packedKeys, scores, scoreStride, false);
    smallGemm(rows, columns, shape.valueWidth, dOBlock, dOutputs.rowStride, 1, packedValues, slopes, scoreStride,
              false);
    softmaxGradients(shape, operands.mask, head, begin, rows, seen, operands.lse + head * shape.queries + begin, deltas,
                     scores, slopes);

    for (std::int64_t column = 0; column < shape.queryWidth; column += panelColumns) {
      const std::int64_t width = std::min(panelColumns, shape.queryWidth - column);
      smallGemm(rows, width, seen, slopes, scoreStride, 1, packedKeyRows + column * shape.keys,
                dQueries.data + begin * dQueries.rowStride + column, dQueries.rowStride, false);
    }
    packRows(qBlock, queries.rowStride, rows, shape.queryWidth, packedQueries);
    packRows(dOBlock, dOutputs.rowStride, rows, shape.valueWidth, packedOutputs);
    smallGemm(seen, shape.queryWidth, rows, slopes, 1, scoreStride, packedQueries, dKeys.data, dKeys.rowStride,
              accumulate);
    smallGemm(seen, shape.valueWidth, rows, scores, 1, scoreStride, packedOutputs, dValues.data, dValues.rowStride,
              accumulate);
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
    for (std::int64_t head = keyHead * group; head < (keyHead + 1) * group; ++head)
      backwardHead(shape, operands, head, scratchFloats);
  };
  forEachHead(c, shape.batch * headsOfKeys(shape), attentionGradScratchBytes(shape), workspace, backward);
}

} // namespace fsdpc::rt
