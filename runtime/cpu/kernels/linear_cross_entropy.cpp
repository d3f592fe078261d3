#include "runtime/cpu/kernels/linear_cross_entropy.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/copy.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

constexpr std::int64_t grain = 4096;

template <class Body>
void forEach(const Context &c, std::int64_t count, const Body &body) {
  parallelFor(c, count, grain, [&body](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      body(i);
  });
}

template <class T>
void capAll(const Context &c, float cap, std::int64_t count, T *x) {
  forEach(c, count, [=](std::int64_t i) { x[i] = static_cast<T>(cap * scalar::tanh(static_cast<float>(x[i]) / cap)); });
}

/// The operands as f32 copies at the start of the scratch, and the rest of it.
struct CopiedOperands {
  const float *hidden, *weight, *bias;
  float *dhidden;
  Workspace rest;

  CopiedOperands(const Context &c, const LinearLossShape &shape, bool isGrad, const Bfloat16 *givenHidden,
                 const Bfloat16 *givenWeight, const Bfloat16 *givenBias, Workspace workspace) {
    const std::int64_t rows = shape.loss.rows, width = shape.width, classes = shape.loss.classes;
    const scratch_sizes::LinearLossCopies copies({rows, width, classes, givenBias != nullptr, isGrad});
    const auto at = [&](std::int64_t offsetBytes) { return reinterpret_cast<float *>(workspace.data + offsetBytes); };
    hidden = promoted(c, givenHidden, at(copies.hidden), rows * width);
    weight = promoted(c, givenWeight, at(copies.weight), width * classes);
    bias = givenBias ? promoted(c, givenBias, at(copies.bias), classes) : nullptr;
    dhidden = at(copies.dhidden);
    rest = {workspace.data + copies.end, workspace.bytes - copies.end};
  }
};

} // namespace

void linearCrossEntropy(const Context &c, const LinearLossShape &shape, const LossMatmuls &whole,
                        const LossMatmuls &rest, const Bfloat16 *hidden, const Bfloat16 *weight,
                        const std::int64_t *labels, const Bfloat16 *bias, float *terms, std::int64_t *predicted,
                        Workspace workspace) {
  if (multipliesBf16(c))
    return linearCrossEntropy<LossMatmul, Bfloat16>(c, shape, whole, rest, hidden, weight, labels, bias, terms,
                                                    predicted, workspace);
  const CopiedOperands copied(c, shape, false, hidden, weight, bias, workspace);
  linearCrossEntropy<LossMatmul, float>(c, shape, whole, rest, copied.hidden, copied.weight, labels, copied.bias, terms,
                                        predicted, copied.rest);
}

void linearCrossEntropyGrad(const Context &c, const LinearLossShape &shape, const LossMatmuls &whole,
                            const LossMatmuls &rest, const float *dterms, const Bfloat16 *hidden,
                            const Bfloat16 *weight, const std::int64_t *labels, const Bfloat16 *bias, float *terms,
                            Bfloat16 *dhidden, float *dweight, float *dbias, Workspace workspace) {
  if (multipliesBf16(c))
    return linearCrossEntropyGrad<LossMatmul, Bfloat16>(c, shape, whole, rest, dterms, hidden, weight, labels, bias,
                                                        terms, dhidden, dweight, dbias, workspace);
  const CopiedOperands copied(c, shape, true, hidden, weight, bias, workspace);
  linearCrossEntropyGrad<LossMatmul, float>(c, shape, whole, rest, dterms, copied.hidden, copied.weight, labels,
                                            copied.bias, terms, copied.dhidden, dweight, dbias, copied.rest);
  narrow(c, copied.dhidden, dhidden, shape.loss.rows * shape.width);
}

void roundTo(const Context &c, DType dtype, std::int64_t count, float *x) {
  if (dtype == DType::bf16)
    forEach(c, count, [x](std::int64_t i) { x[i] = static_cast<float>(Bfloat16(x[i])); });
  else if (dtype == DType::f16)
    forEach(c, count, [x](std::int64_t i) { x[i] = static_cast<float>(Float16(x[i])); });
}

void capLogits(const Context &c, float cap, std::int64_t count, float *x) { capAll(c, cap, count, x); }
void capLogits(const Context &c, float cap, std::int64_t count, Bfloat16 *x) { capAll(c, cap, count, x); }

void addTo(const Context &c, std::int64_t count, const float *x, float *sum) {
  forEach(c, count, [=](std::int64_t i) { sum[i] += x[i]; });
}

void argMax(const Context &c, const AxisShape &rows, const Bfloat16 *x, std::int64_t *out) {
  parallelFor(c, rows.outer, 1, [=, &rows](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Bfloat16 *const row = x + i * rows.count;
      std::int64_t best = 0;
      auto largest = static_cast<float>(row[0]);
      for (std::int64_t j = 1; j < rows.count && largest == largest; ++j)
        if (const auto value = static_cast<float>(row[j]); value > largest || value != value) {
          best = j;
          largest = value;
        }
      out[i] = best;
    }
  });
}

void reduceSum(const Context &c, const ReduceShape &columns, const Bfloat16 *x, float *out) {
  constexpr std::int64_t block = 256;
  const std::int64_t rows = columns.dims[0], classes = columns.dims[1];
  parallelFor(c, (classes + block - 1) / block, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin * block; first < std::min(end * block, classes); first += block) {
      const std::int64_t width = std::min(block, classes - first);
      double sums[block] = {};
      for (std::int64_t i = 0; i < rows; ++i)
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j)
          sums[j] += static_cast<float>(x[i * classes + first + j]);
      for (std::int64_t j = 0; j < width; ++j)
        out[first + j] = static_cast<float>(sums[j]);
    }
  });
}

} // namespace fsdpc::rt
