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

template <class T>
float logSumExp(const T *x, std::int64_t count) {
  float largest = -scalar::infinity;
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < count; ++j) {
    const auto value = static_cast<float>(x[j]);
    largest = value > largest ? value : largest;
  }
  const double sum = sumOfExponentials(x, count, largest, [](std::int64_t j) { return j; });
  return largest + std::log(static_cast<float>(sum));
}

template <class T>
float meanOf(const T *x, std::int64_t count) {
  return static_cast<float>(sumOf(count, [x](std::int64_t j) { return static_cast<float>(x[j]); }) /
                            static_cast<double>(count));
}

template <class T>
float termOf(const LossShape &shape, const T *x, std::int64_t label, float lse) {
  if (label == shape.ignoreIndex)
    return 0;
  if (!isClass(shape, label))
    return scalar::notANumber;
  const float term = lse - static_cast<float>(x[label]);
  if (shape.labelSmoothing == 0)
    return term;
  const float smoothing = static_cast<float>(shape.labelSmoothing);
  return (1 - smoothing) * term + smoothing * (lse - meanOf(x, shape.classes));
}

template <class T>
void fillRow(T *out, std::int64_t count, float value) {
  for (std::int64_t j = 0; j < count; ++j)
    out[j] = static_cast<T>(value);
}

float everyClassOf(const LossShape &shape) {
  return static_cast<float>(shape.labelSmoothing) / static_cast<float>(shape.classes);
}

/// The derivatives of a row sum to zero. If the probability of the label is close to 1, 1 minus it is mostly rounding
/// error, but the sum over the other classes is not. dx may be x.
template <class T>
void differentiateRow(const LossShape &shape, const T *x, std::int64_t label, float scale, float lse, T *dx) {
  const float everyClass = everyClassOf(shape);
  const float slopeOfLabel = scale * (scalar::exp(static_cast<float>(x[label]) - lse) - everyClass);
  double others = 0;
#pragma omp simd reduction(+ : others)
  for (std::int64_t j = 0; j < shape.classes; ++j) {
    const float slope = scale * (scalar::exp(static_cast<float>(x[j]) - lse) - everyClass);
    others += slope;
    dx[j] = static_cast<T>(slope);
  }
  dx[label] = static_cast<T>(static_cast<float>(slopeOfLabel - others));
}

/// The same with the derivative of x = softcap * tanh(z / softcap), which is 1 - (x / softcap)^2.
template <class T>
void differentiateCappedRow(const LossShape &shape, const T *x, std::int64_t label, float scale, float lse, T *dx) {
  const float everyClass = everyClassOf(shape), perCap = 1 / shape.softcap,
              ofLabel = static_cast<float>(x[label]) * perCap;
  const float slopeOfLabel = scale * (scalar::exp(static_cast<float>(x[label]) - lse) - everyClass);
  double others = 0;
#pragma omp simd reduction(+ : others)
  for (std::int64_t j = 0; j < shape.classes; ++j) {
    const auto logit = static_cast<float>(x[j]);
    const float slope = scale * (scalar::exp(logit - lse) - everyClass), capped = logit * perCap;
    others += slope;
    dx[j] = static_cast<T>(slope * (1 - capped * capped));
  }
  dx[label] = static_cast<T>(static_cast<float>(slopeOfLabel - others) * (1 - ofLabel * ofLabel));
}

} // namespace

template <class T>
void crossEntropy(const Context &c, const LossShape &shape, const T *logits, const std::int64_t *labels, float *terms,
                  float *lse) {
  parallelFor(c, shape.rows, rowGrain(shape), [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T *const x = logits + i * shape.classes;
      lse[i] = logSumExp(x, shape.classes);
      terms[i] = termOf(shape, x, labels[i], lse[i]);
    }
  });
}

template <class T>
void crossEntropyGrad(const Context &c, const LossShape &shape, const float *dterms, const T *logits,
                      const std::int64_t *labels, const float *lse, T *dlogits) {
  const std::int64_t classes = shape.classes;
  parallelFor(c, shape.rows, rowGrain(shape), [=, &shape](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T *const dx = dlogits + i * classes;
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

FSDPC_CROSS_ENTROPY(, float)
FSDPC_CROSS_ENTROPY(, Bfloat16)

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
