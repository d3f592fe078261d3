#include "runtime/cpu/kernels/attention.h"

#include "runtime/cpu/cpu_level.h"
#include "runtime/cpu/kernels/attention_heads.h"
#include "runtime/cpu/kernels/attention_scores.h"
#include "runtime/cpu/kernels/attention_tiles.h"

#include <cstring>

namespace fsdpc::rt {

namespace {

// A block of queries is a multiple of the matmul kernel's tile height, and its scores stay in cache for up to a few
// thousand keys.
using scratch_sizes::AttentionCopies;
using scratch_sizes::AttentionGradLayout;
using scratch_sizes::AttentionLayout;
using scratch_sizes::queryBlock;

float dot(const float *a, const float *b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < count; ++j)
    sum += a[j] * b[j];
  return sum;
}

AttentionLayout layoutOf(const AttentionShape &s) { return {s.keys, s.queryWidth, s.valueWidth}; }
AttentionGradLayout gradLayoutOf(const AttentionShape &s) { return {s.keys, s.queryWidth, s.valueWidth}; }

void forwardHead(const AttentionShape &shape, std::int64_t head, const AttentionMasks &masks,
                 const AttentionHead<float> &of, float *scratchFloats) {
  const AttentionLayout layout = layoutOf(shape);
  float *const packedKeys = scratchFloats;
  float *const packedValues = scratchFloats + layout.values;
  float *const scores = scratchFloats + layout.scores;
  const std::int64_t stride = paddedColumns(shape.keys);
  packColumns(of.k.data, of.k.rowStride, shape.queryWidth, shape.keys, packedKeys);
  packRows(of.v.data, of.v.rowStride, shape.keys, shape.valueWidth, packedValues);

  for (std::int64_t begin = 0; begin < shape.queries; begin += queryBlock) {
    const std::int64_t rows = std::min(queryBlock, shape.queries - begin);
    const auto product = [&](KeyRange seen) {
      // Complete panels. Columns beyond those seen are never read.
      smallGemm(rows, paddedColumns(seen.count()), shape.queryWidth, of.q.row(begin), of.q.rowStride, 1,
                packedKeys + seen.begin * shape.queryWidth, scores, stride, false);
    };
    float factors[queryBlock];
    const KeyRange seen = softmaxOfBlock(shape, masks, head, begin, rows, scores, of.lse + begin, factors, product,
                                         [](std::int64_t, KeyRange) {});
    // Panels of v hold all keys, but a block reads only those that it sees. So it processes one panel of columns at a
    // time.
    for (std::int64_t column = 0; column < shape.valueWidth; column += panelColumns) {
      const std::int64_t width = std::min(panelColumns, shape.valueWidth - column);
      smallGemm(rows, width, seen.count(), scores, stride, 1,
                packedValues + column * shape.keys + seen.begin * panelColumns, of.o.row(begin) + column,
                of.o.rowStride, false);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      float *const row = of.o.row(begin + i);
#pragma omp simd
      for (std::int64_t d = 0; d < shape.valueWidth; ++d)
        row[d] *= factors[i];
    }
  }
}

/// Packs the operands that all queries of the group read from k and v.
void packKeys(const AttentionShape &shape, Head<const float> keys, Head<const float> values, float *scratchFloats) {
  const AttentionGradLayout layout = gradLayoutOf(shape);
  packColumns(keys.data, keys.rowStride, shape.queryWidth, shape.keys, scratchFloats);
  packRows(keys.data, keys.rowStride, shape.keys, shape.queryWidth, scratchFloats + layout.keyRows);
  packColumns(values.data, values.rowStride, shape.valueWidth, shape.keys, scratchFloats + layout.values);
}

void clear(Head<float> head, std::int64_t rows, std::int64_t width) {
  for (std::int64_t j = 0; j < rows; ++j)
    std::memset(head.row(j), 0, sizeof(float) * width);
}

/// Computes dq of one head of q, and adds its part of the gradients of the head of k and v that it reads.
void backwardHead(const AttentionShape &shape, std::int64_t head, const AttentionMasks &masks,
                  const AttentionGradHead<float> &of, Head<float> dk, Head<float> dv, float *scratchFloats) {
  const AttentionGradLayout layout = gradLayoutOf(shape);
  float *const packedKeys = scratchFloats;                     // k^T, for scores
  float *const packedKeyRows = scratchFloats + layout.keyRows; // k, for dq
  float *const packedValues = scratchFloats + layout.values;   // v^T, for dp
  float *const packedQueries = scratchFloats + layout.queries;
  float *const packedOutputs = scratchFloats + layout.outputs;
  float *const scores = scratchFloats + layout.scores;
  float *const slopes = scratchFloats + layout.slopes;
  const std::int64_t stride = paddedColumns(shape.keys);

  const std::int64_t blocks = (shape.queries + queryBlock - 1) / queryBlock;
  for (std::int64_t block = blocks - 1; block >= 0; --block) {
    const std::int64_t begin = block * queryBlock;
    const std::int64_t rows = std::min(queryBlock, shape.queries - begin);
    const KeyRange seen = keysOfGradBlock(shape, masks, head, begin, rows, of.lse + begin);
    const float *const qBlock = of.q.row(begin), *const dOBlock = of.dO.row(begin);
    // Complete panels. Columns beyond `seen` are never read.
    const std::int64_t columns = paddedColumns(seen.count());
    smallGemm(rows, columns, shape.queryWidth, qBlock, of.q.rowStride, 1, packedKeys + seen.begin * shape.queryWidth,
              scores, stride, false);
    smallGemm(rows, columns, shape.valueWidth, dOBlock, of.dO.rowStride, 1,
              packedValues + seen.begin * shape.valueWidth, slopes, stride, false);
    for (std::int64_t i = 0; i < rows; ++i)
      softmaxGradientOfRow(shape, masks, head, begin + i, seen, of.lse[begin + i],
                           dot(of.dO.row(begin + i), of.o.row(begin + i), shape.valueWidth), scores + i * stride,
                           slopes + i * stride);

    for (std::int64_t column = 0; column < shape.queryWidth; column += panelColumns) {
      const std::int64_t width = std::min(panelColumns, shape.queryWidth - column);
      smallGemm(rows, width, seen.count(), slopes, stride, 1,
                packedKeyRows + column * shape.keys + seen.begin * panelColumns, of.dq.row(begin) + column,
                of.dq.rowStride, false);
    }
    packRows(qBlock, of.q.rowStride, rows, shape.queryWidth, packedQueries);
    packRows(dOBlock, of.dO.rowStride, rows, shape.valueWidth, packedOutputs);
    smallGemm(seen.count(), shape.queryWidth, rows, slopes, 1, stride, packedQueries, dk.row(seen.begin), dk.rowStride,
              true);
    smallGemm(seen.count(), shape.valueWidth, rows, scores, 1, stride, packedOutputs, dv.row(seen.begin), dv.rowStride,
              true);
  }
}

/// A head of 16-bit elements as floats at `to`, its rows without gaps.
template <class Half>
Head<const float> floatsOf(Head<const Half> head, std::int64_t rows, std::int64_t width, float *to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const Half *const row = head.row(i);
#pragma omp simd
    for (std::int64_t d = 0; d < width; ++d)
      to[i * width + d] = static_cast<float>(row[d]);
  }
  return {to, width};
}

template <class Half>
void store(Head<float> from, std::int64_t rows, std::int64_t width, Head<Half> to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float *const row = from.row(i);
    Half *const rounded = to.row(i);
#pragma omp simd
    for (std::int64_t d = 0; d < width; ++d)
      storeRounded(rounded[d], row[d]);
  }
}

void forward(const AttentionShape &s, std::int64_t head, const AttentionMasks &masks,
             const AttentionTensors<float> &tensors, float *scratchFloats) {
  forwardHead(s, head, masks, tensors.head(s, head), scratchFloats);
}

/// On f32 copies of the head.
template <class Half>
void forward(const AttentionShape &s, std::int64_t head, const AttentionMasks &masks,
             const AttentionTensors<Half> &tensors, float *scratchFloats) {
  const AttentionCopies at(sizesOf(s), /*isGrad=*/false);
  const AttentionHead<Half> of = tensors.head(s, head);
  const Head<float> o{scratchFloats + at.o, s.valueWidth};
  forwardHead(s, head, masks,
              {floatsOf(of.q, s.queries, s.queryWidth, scratchFloats + at.q),
               floatsOf(of.k, s.keys, s.queryWidth, scratchFloats + at.k),
               floatsOf(of.v, s.keys, s.valueWidth, scratchFloats + at.v), o, of.lse},
              scratchFloats);
  store(o, s.queries, s.valueWidth, of.o);
}

void backward(const AttentionShape &s, std::int64_t read, const AttentionMasks &masks,
              const AttentionGradTensors<float> &tensors, float *scratchFloats) {
  const AttentionGradGroup<float> group = tensors.group(s, read);
  packKeys(s, group.k, group.v, scratchFloats);
  clear(group.dk, s.keys, s.queryWidth);
  clear(group.dv, s.keys, s.valueWidth);
  for (std::int64_t head = group.begin; head < group.end; ++head)
    backwardHead(s, head, masks, tensors.head(s, head), group.dk, group.dv, scratchFloats);
}

template <class Half>
void backward(const AttentionShape &s, std::int64_t read, const AttentionMasks &masks,
              const AttentionGradTensors<Half> &tensors, float *scratchFloats) {
  const AttentionCopies at(sizesOf(s), /*isGrad=*/true);
  const AttentionGradGroup<Half> group = tensors.group(s, read);
  packKeys(s, floatsOf(group.k, s.keys, s.queryWidth, scratchFloats + at.k),
           floatsOf(group.v, s.keys, s.valueWidth, scratchFloats + at.v), scratchFloats);
  const Head<float> dk{scratchFloats + at.dk, s.queryWidth}, dv{scratchFloats + at.dv, s.valueWidth},
      dq{scratchFloats + at.dq, s.queryWidth};
  clear(dk, s.keys, s.queryWidth);
  clear(dv, s.keys, s.valueWidth);
  for (std::int64_t head = group.begin; head < group.end; ++head) {
    const AttentionGradHead<Half> of = tensors.head(s, head);
    backwardHead(s, head, masks,
                 {floatsOf(of.dO, s.queries, s.valueWidth, scratchFloats + at.dO),
                  floatsOf(of.q, s.queries, s.queryWidth, scratchFloats + at.q),
                  floatsOf(of.o, s.queries, s.valueWidth, scratchFloats + at.o), of.lse, dq},
                 dk, dv, scratchFloats);
    store(dq, s.queries, s.queryWidth, of.dq);
  }
  store(dk, s.keys, s.queryWidth, group.dk);
  store(dv, s.keys, s.valueWidth, group.dv);
}

template <class T>
bool onTiles(const Context &c, const AttentionShape &shape) {
  return std::is_same_v<T, Bfloat16> && multipliesOnTiles(c) && scratch_sizes::fitsTiles(sizesOf(shape));
}

float *floatsAt(std::byte *scratch) { return reinterpret_cast<float *>(scratch); }

} // namespace

template <class T>
std::int64_t attentionScratchBytes(const AttentionShape &shape) {
  if constexpr (isHalf<T>)
    return scratch_sizes::attentionHalvesBytes(sizesOf(shape), /*isGrad=*/false);
  else
    return layoutOf(shape).size * std::int64_t{sizeof(float)};
}

template <class T>
std::int64_t attentionGradScratchBytes(const AttentionShape &shape) {
  if constexpr (isHalf<T>)
    return scratch_sizes::attentionHalvesBytes(sizesOf(shape), /*isGrad=*/true);
  else
    return gradLayoutOf(shape).size * std::int64_t{sizeof(float)};
}

template <class T>
void attention(const Context &c, const AttentionShape &shape, const T *q, const T *k, const T *v,
               const AttentionMasks &masks, T *o, float *lse, Workspace workspace) {
  const AttentionTensors<T> tensors{q, k, v, o, lse};
  const bool hasTiles = onTiles<T>(c, shape);
  forEachHead(c, shape.batch * shape.heads, attentionScratchBytes<T>(shape), workspace,
              [&](std::int64_t head, std::byte *scratch) {
                if constexpr (std::is_same_v<T, Bfloat16>)
                  if (hasTiles)
                    return forwardOnTiles(shape, head, masks, tensors, scratch);
                forward(shape, head, masks, tensors, floatsAt(scratch));
              });
}

template <class T>
void attentionGrad(const Context &c, const AttentionShape &shape, const T *dO, const T *q, const T *k, const T *v,
                   const T *o, const float *lse, const AttentionMasks &masks, T *dq, T *dk, T *dv,
                   Workspace workspace) {
  const AttentionGradTensors<T> tensors{dO, q, k, v, o, lse, dq, dk, dv};
  const bool hasTiles = onTiles<T>(c, shape);
  forEachHead(c, shape.batch * headsOfKeys(shape), attentionGradScratchBytes<T>(shape), workspace,
              [&](std::int64_t read, std::byte *scratch) {
                if constexpr (std::is_same_v<T, Bfloat16>)
                  if (hasTiles)
                    return backwardOnTiles(shape, read, masks, tensors, scratch);
                backward(shape, read, masks, tensors, floatsAt(scratch));
              });
}

#define FSDPC_ATTENTION(T)                                                                                             \
  template std::int64_t attentionScratchBytes<T>(const AttentionShape &);                                              \
  template std::int64_t attentionGradScratchBytes<T>(const AttentionShape &);                                          \
  template void attention(const Context &, const AttentionShape &, const T *, const T *, const T *,                    \
                          const AttentionMasks &, T *, float *, Workspace);                                            \
  template void attentionGrad(const Context &, const AttentionShape &, const T *, const T *, const T *, const T *,     \
                              const T *, const float *, const AttentionMasks &, T *, T *, T *, Workspace);
FSDPC_ATTENTION(float)
FSDPC_ATTENTION(Bfloat16)
FSDPC_ATTENTION(Float16)
#undef FSDPC_ATTENTION

} // namespace fsdpc::rt
