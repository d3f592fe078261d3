// The cross entropy of a linear layer's logits, computed for chunks of positions, so that never all logits exist.
//
//   logits = hidden [rows, width] weight + bias;   weight: [width, classes], or [classes, width] if transposed
//
// Included by a target after its kernels. It needs their crossEntropy, crossEntropyGrad, argMax, reduceSum and matmuls;
// `roundTo(c, dtype, count, x)`, which rounds floats that stand for a 16-bit type; `capLogits(c, cap, count, x)`, x =
// cap * tanh(x / cap); and `addTo(c, count, x, sum)`, sum += x.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/chunked_loss_layout.h"
#include "runtime/common/kernel_shapes.h"

#include <algorithm>
#include <type_traits>

namespace fsdpc::rt {

/// The matmuls for chunks of one size. The sum over positions of the first chunk overwrites, the others add.
template <class Matmul>
struct ChunkMatmuls {
  const Matmul *logits = nullptr, *dhidden = nullptr, *dweight = nullptr, *dweightAdded = nullptr;
};

/// What is left of a chunk's scratch for its matmuls.
template <class T>
struct ChunkScratch {
  T *logits;
  float *lse, *columns;
  Workspace matmuls;

  ChunkScratch(const LinearLossShape &shape, bool sumsColumns, Workspace workspace) {
    const ChunkedLossLayout layout(shape.chunk, shape.loss.classes, sizeof(T), sumsColumns);
    logits = reinterpret_cast<T *>(workspace.data);
    lse = reinterpret_cast<float *>(workspace.data + layout.lse);
    columns = reinterpret_cast<float *>(workspace.data + layout.columns);
    matmuls = {workspace.data + layout.matmuls, workspace.bytes - layout.matmuls};
  }
};

/// The logits of some positions, each rounded to the shape's element type before it is capped and after.
template <class Matmul, class T>
void chunkLogits(const Context &c, const LinearLossShape &shape, const Matmul &matmul, std::int64_t rows,
                 const T *hidden, const T *weight, const T *bias, const ChunkScratch<T> &scratch) {
  if (bias)
    matmul(hidden, weight, bias, scratch.logits, scratch.matmuls);
  else
    matmul(hidden, weight, scratch.logits, scratch.matmuls);
  const std::int64_t count = rows * shape.loss.classes;
  roundTo(c, shape.elements, count, scratch.logits);
  if (shape.loss.softcap == 0)
    return;
  capLogits(c, shape.loss.softcap, count, scratch.logits);
  roundTo(c, shape.elements, count, scratch.logits);
}

/// terms [rows]; predicted [rows]: the class of the largest logit.
template <class Matmul, class T>
void linearCrossEntropy(const Context &c, const LinearLossShape &shape, const ChunkMatmuls<Matmul> &whole,
                        const ChunkMatmuls<Matmul> &rest, const T *hidden, const T *weight, const std::int64_t *labels,
                        const std::type_identity_t<T> *bias, float *terms, std::int64_t *predicted,
                        Workspace workspace) {
  const ChunkScratch<T> scratch(shape, false, workspace);
  for (std::int64_t first = 0; first < shape.loss.rows; first += shape.chunk) {
    const std::int64_t rows = std::min(shape.chunk, shape.loss.rows - first);
    const ChunkMatmuls<Matmul> &matmuls = rows == shape.chunk ? whole : rest;
    chunkLogits(c, shape, *matmuls.logits, rows, hidden + first * shape.width, weight, bias, scratch);
    LossShape loss = shape.loss;
    loss.rows = rows;
    crossEntropy(c, loss, scratch.logits, labels + first, terms + first, scratch.lse);
    argMax(c, AxisShape{.outer = rows, .count = loss.classes}, scratch.logits, predicted + first);
  }
}

/// Also the derivatives, for those of the terms. dweight and dbias may be null. dbias needs `columns` in the scratch.
template <class Matmul, class T>
void linearCrossEntropyGrad(const Context &c, const LinearLossShape &shape, const ChunkMatmuls<Matmul> &whole,
                            const ChunkMatmuls<Matmul> &rest, const float *dterms, const T *hidden, const T *weight,
                            const std::int64_t *labels, const std::type_identity_t<T> *bias, float *terms, T *dhidden,
                            float *dweight, float *dbias, Workspace workspace) {
  const ChunkScratch<T> scratch(shape, dbias != nullptr, workspace);
  for (std::int64_t first = 0; first < shape.loss.rows; first += shape.chunk) {
    const std::int64_t rows = std::min(shape.chunk, shape.loss.rows - first), start = first * shape.width;
    const ChunkMatmuls<Matmul> &matmuls = rows == shape.chunk ? whole : rest;
    chunkLogits(c, shape, *matmuls.logits, rows, hidden + start, weight, bias, scratch);
    LossShape loss = shape.loss;
    loss.rows = rows;
    crossEntropy(c, loss, scratch.logits, labels + first, terms + first, scratch.lse);
    crossEntropyGrad(c, loss, dterms + first, scratch.logits, labels + first, scratch.lse, scratch.logits);
    roundTo(c, shape.elements, rows * loss.classes, scratch.logits);
    (*matmuls.dhidden)(scratch.logits, weight, dhidden + start, scratch.matmuls);
    if (dweight) {
      const T *const a = shape.transposeB ? scratch.logits : hidden + start, *const b = shape.transposeB
                                                                                            ? hidden + start
                                                                                            : scratch.logits;
      (first == 0 ? *matmuls.dweight : *matmuls.dweightAdded)(a, b, dweight, scratch.matmuls);
    }
    if (dbias) {
      const ReduceShape columns = {.rank = 2, .dims = {rows, loss.classes}, .reduced = {true, false}};
      reduceSum(c, columns, scratch.logits, first == 0 ? dbias : scratch.columns);
      if (first > 0)
        addTo(c, loss.classes, scratch.columns, dbias);
    }
  }
}

} // namespace fsdpc::rt
