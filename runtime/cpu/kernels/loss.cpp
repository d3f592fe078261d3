#include "runtime/cpu/kernels/loss.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/kernels/long_sum.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

namespace {

std::int64_t rowGrain(const LossShape &shape) {
  return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(shape.classes, 1));
}

bool isClass(const LossShape &shape, std::int64_t label) { return label >= 0 && label < shape.classes; }

float logSumExp(const float *x, std::int64_t count) {
  float largest = -scalar::infinity;
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < count; ++j)
    largest = x[j] > largest ? x[j] : largest;
  const double sum = sumOfExponentials(x, count, largest, [](std::int64_t j) { return j; });
  return largest + std::log(static_cast<float>(sum));
}

float meanOf(const float *x, std::int64_t count) {
  return static_cast<float>(sumOf(count, [x](std::int64_t j) { return x[j]; }) / static_cast<double>(count));
}

float termOf(const LossShape &shape, const float *x, std::int64_t label, float lse) {
  if (label == shape.ignoreIndex)
    return 0;
  if (!isClass(shape, label))
    return scalar::notANumber;
  const float term = lse - x[label];
  if (shape.labelSmoothing == 0)
    return term;
  const float smoothing = static_cast<float>(shape.labelSmoothing);
  return (1 - smoothing) * term + smoothing * (lse - meanOf(x, shape.classes));
}

void fillRow(float *out, std::int64_t count, float value) {
  for (std::int64_t j = 0; j < count; ++j)
    out[j] = value;
}

float everyClassOf(const LossShape &shape) {
  return static_cast<float>(shape.labelSmoothing) / static_cast<float>(shape.classes);
}

/// The derivatives of a row sum to zero. If the probability of the label is close to 1, 1 minus it is mostly rounding
/// error, but the sum over the other classes is not. dx may be x.
void differentiateRow(const LossShape &shape, const float *x, std::int64_t label, float scale, float lse, float *dx) {
  const float everyClass = everyClassOf(shape);
  double others = 0;
#pragma omp simd reduction(+ : others)
  for (std::int64_t j = 0; j < shape.classes; ++j) {
    dx[j] = scale * (scalar::exp(x[j] - lse) - everyClass);
    others += dx[j];
  }
  dx[label] = static_cast<float>(dx[label] - others);
}

/// The same with the derivative of x = softcap * tanh(z / softcap), which is 1 - (x / softcap)^2.
void differentiateCappedRow(const LossShape &shape, const float *x, std::int64_t label, float scale, float lse,
                            float *dx) {
  const float everyClass = everyClassOf(shape), perCap = 1 / shape.softcap, ofLabel = x[label] * perCap;
  const float slopeOfLabel = scale * (scalar::exp(x[label] - lse) - everyClass);
  double others = 0;
#pragma omp simd reduction(+ : others)
  for (std::int64_t j = 0; j < shape.classes; ++j) {
    const float slope = scale * (scalar::exp(x[j] - lse) - everyClass), capped = x[j] * perCap;
    others += slope;
    dx[j] = slope * (1 - capped * capped);
  }
  dx[label] = static_cast<float>(slopeOfLabel - others) * (1 - ofLabel * ofLabel);
}

} // namespace

void crossEntropy(const Context &c, const LossShape &shape, const float *logits, const std::int64_t *labels,
                  float *terms, float *lse) {
  parallelFor(c, shape.rows, rowGrain(shape), [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float *const x = logits + i * shape.classes;
      lse[i] = logSumExp(x, shape.classes);
      terms[i] = termOf(shape, x, labels[i], lse[i]);
    }
  });
}

void crossEntropyGrad(const Context &c, const LossShape &shape, const float *dterms, const float *logits,
                      const std::int64_t *labels, const float *lse, float *dlogits) {
  const std::int64_t classes = shape.classes;
  parallelFor(c, shape.rows, rowGrain(shape), [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float *const dx = dlogits + i * classes;
      const std::int64_t label = labels[i];
      if (label == shape.ignoreIndex || !isClass(shape, label))
        fillRow(dx, classes, label == shape.ignoreIndex ? 0 : scalar::notANumber);
      else if (shape.softcap == 0)
        differentiateRow(shape, logits + i * classes, label, dterms[i], lse[i], dx);
      else
        differentiateCappedRow(shape, logits + i * classes, label, dterms[i], lse[i], dx);
    }
  });
}

void nll(const Context &c, const LossShape &shape, const float *logProbabilities, const std::int64_t *labels,
         float *terms) {
  parallelFor(c, shape.rows, 4096, [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      terms[i] = termOf(shape, logProbabilities + i * shape.classes, labels[i], 0);
  });
}

void nllGrad(const Context &c, const LossShape &shape, const float *dterms, const std::int64_t *labels,
             float *dLogProbabilities) {
  const std::int64_t classes = shape.classes;
  const float smoothing = static_cast<float>(shape.labelSmoothing);
  parallelFor(c, shape.rows, rowGrain(shape), [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float *const dx = dLogProbabilities + i * classes;
      const bool counts = labels[i] != shape.ignoreIndex;
      fillRow(dx, classes, counts ? -dterms[i] * smoothing / static_cast<float>(classes) : 0);
      if (counts && isClass(shape, labels[i]))
        dx[labels[i]] -= dterms[i] * (1 - smoothing);
      else if (counts)
        fillRow(dx, classes, scalar::notANumber);
    }
  });
}

} // namespace fsdpc::rt
