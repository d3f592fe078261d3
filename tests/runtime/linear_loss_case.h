// The loss of a linear layer over chunks of positions: cases, and the matmuls that a program creates for it.
#pragma once

#include "tests/runtime/kernels_references.h"

namespace fsdpc::rt {

struct LinearLossCase {
  std::int64_t rows, width, classes, chunk;
  bool transposeB = false, hasBias = false;
  float softcap = 0;
  double smoothing = 0;

  LinearLossShape shape() const {
    LinearLossShape shape;
    shape.loss = {rows, classes, 3, smoothing, softcap};
    shape.width = width;
    shape.chunk = chunk;
    shape.transposeB = transposeB;
    return shape;
  }
  std::vector<std::int64_t> labels() const {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < rows; ++i)
      values.push_back(i * 5 % classes); // 3, the ignored one, among them
    values[1] = 3;
    return values;
  }
};

inline constexpr LinearLossCase linearLossCases[] = {
    {.rows = 7, .width = 5, .classes = 11, .chunk = 3},
    {.rows = 8, .width = 33, .classes = 70, .chunk = 4, .transposeB = true, .hasBias = true},
    {.rows = 6, .width = 16, .classes = 1030, .chunk = 6, .transposeB = true, .softcap = 2},
    {.rows = 9, .width = 4, .classes = 13, .chunk = 2, .hasBias = true, .softcap = 0.5, .smoothing = 0.1},
};

/// The matmuls of chunks of one size, which start() creates in a program.
struct MatmulsOfChunk {
  LossMatmul logits, dhidden, dweight, dweightAdded;
  LossMatmuls all{&logits, &dhidden, &dweight, &dweightAdded};
  std::int64_t scratchBytes = 0;

  MatmulsOfChunk(const Context &c, const LinearLossShape &s, std::int64_t rows, bool hasBias) : elements(s.elements) {
    const std::int64_t classes = s.loss.classes;
    make(c, logits,
         {.m = rows, .n = classes, .k = s.width, .transposeB = s.transposeB, .bias = hasBias, .result = elements});
    make(c, dhidden, {.m = rows, .n = s.width, .k = classes, .transposeB = !s.transposeB, .result = elements});
    MatmulShape sum{.m = s.width, .n = classes, .k = rows, .transposeA = true};
    if (s.transposeB)
      std::swap(sum.m, sum.n);
    make(c, dweight, sum);
    sum.accumulate = true;
    make(c, dweightAdded, sum);
  }

private:
  void make(const Context &c, LossMatmul &matmul, MatmulShape shape) {
    shape.elements = elements;
    shape.transposeA &= shape.m != 1 && shape.k != 1;
    shape.transposeB &= shape.k != 1 && shape.n != 1;
    matmul.create(c, shape, plenty);
    scratchBytes = std::max(scratchBytes, scratchBytesOf(matmul));
  }

  DType elements;
};

} // namespace fsdpc::rt
