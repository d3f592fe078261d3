// Where the heads of the tensors of attention lie. Internal to attention.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/cpu/kernels/scratch_sizes.h"

#include <algorithm>

namespace fsdpc::rt {

/// Addresses of one head: element (s, d) is data[s * rowStride + d].
template <class T>
struct Head {
  T *data;
  std::int64_t rowStride;
  T *row(std::int64_t s) const { return data + s * rowStride; }
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

inline std::int64_t headsOfKeys(const AttentionShape &shape) {
  return shape.keyHeads > 0 ? shape.keyHeads : shape.heads;
}
/// The number of heads of q that read one head of k.
inline std::int64_t groupOf(const AttentionShape &shape) {
  return shape.heads / std::max<std::int64_t>(headsOfKeys(shape), 1);
}
/// A head of k, v or their derivatives.
template <class T>
Head<T> keyHead(const AttentionShape &shape, T *data, std::int64_t width, std::int64_t head) {
  return headOf(shape.sequenceFirst, data, shape.keys, width, headsOfKeys(shape), head);
}

inline scratch_sizes::AttentionSizes sizesOf(const AttentionShape &s) {
  return {s.queries, s.keys, s.queryWidth, s.valueWidth};
}

/// One head of q, with the head of k and v that it reads.
template <class T>
struct AttentionHead {
  Head<const T> q, k, v;
  Head<T> o;
  float *lse;
};

/// Operands and results of attention.
template <class T>
struct AttentionTensors {
  const T *q, *k, *v;
  T *o;
  float *lse;

  AttentionHead<T> head(const AttentionShape &s, std::int64_t head) const {
    const std::int64_t read = head / groupOf(s);
    return {queryHead(s, q, s.queryWidth, head), keyHead(s, k, s.queryWidth, read), keyHead(s, v, s.valueWidth, read),
            queryHead(s, o, s.valueWidth, head), lse + head * s.queries};
  }
};

/// One head of q in the derivative.
template <class T>
struct AttentionGradHead {
  Head<const T> dO, q, o;
  const float *lse;
  Head<T> dq;
};

/// One head of k and v in the derivative, with the heads [begin, end) of q that read it.
template <class T>
struct AttentionGradGroup {
  Head<const T> k, v;
  Head<T> dk, dv;
  std::int64_t begin, end;
};

/// Operands and results of its derivative.
template <class T>
struct AttentionGradTensors {
  const T *dO, *q, *k, *v, *o;
  const float *lse;
  T *dq, *dk, *dv;

  AttentionGradHead<T> head(const AttentionShape &s, std::int64_t head) const {
    return {queryHead(s, dO, s.valueWidth, head), queryHead(s, q, s.queryWidth, head),
            queryHead(s, o, s.valueWidth, head), lse + head * s.queries, queryHead(s, dq, s.queryWidth, head)};
  }
  AttentionGradGroup<T> group(const AttentionShape &s, std::int64_t read) const {
    return {keyHead(s, k, s.queryWidth, read),
            keyHead(s, v, s.valueWidth, read),
            keyHead(s, dk, s.queryWidth, read),
            keyHead(s, dv, s.valueWidth, read),
            read * groupOf(s),
            (read + 1) * groupOf(s)};
  }
};

} // namespace fsdpc::rt
