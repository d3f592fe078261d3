// A team (block.h) per row of classes. Cross entropy reads the logits once: one pass computes the largest, the sum of
// exponentials and, for label smoothing, the sum. Its derivative reads and writes them once, with the kept lse.
//
// Cross entropy and negative log-likelihood share their kernels: `ofLogits` distinguishes them.
#include "runtime/cuda/kernels/loss.h"

#include "runtime/cuda/kernels/block.h"

namespace fsdpc::rt {

namespace {

__device__ bool isClass(const LossShape &shape, std::int64_t label) { return label >= 0 && label < shape.classes; }

/// `sum` is the sum of x, for label smoothing.
template <class T>
__device__ float termOf(const LossShape &shape, const T *x, std::int64_t label, float lse, double sum) {
  if (label == shape.ignoreIndex)
    return 0;
  if (!isClass(shape, label))
    return scalar::notANumber;
  const float term = lse - static_cast<float>(x[label]);
  if (shape.labelSmoothing == 0)
    return term;
  const float smoothing = static_cast<float>(shape.labelSmoothing),
              mean = static_cast<float>(sum / static_cast<double>(shape.classes));
  return (1 - smoothing) * term + smoothing * (lse - mean);
}

/// x: logits, or log-probabilities, which have no lse.
template <bool ofLogits, class Rows, class T>
__global__ void lossTerms(LossShape shape, const T *x, const std::int64_t *labels, float *terms, float *lse) {
  using Team = typename Rows::Team;
  const bool isSmooth = shape.labelSmoothing != 0;
  for (std::int64_t row = Team::firstRow(); row < shape.rows; row += Team::rowStep()) {
    const T *const own = x + row * shape.classes;
    ShiftedSum exponentials = noShiftedSum;
    double sum = 0;
    if (ofLogits || isSmooth)
      Rows::forEachPack(shape.classes, [&](auto pack) {
        float values[pack.width];
        load(own, pack, values);
        if constexpr (ofLogits)
          include(exponentials, values);
        if (isSmooth)
          sum += static_cast<double>(treeSum(values));
      });
    if (isSmooth)
      sum = Team::sum(sum);
    if constexpr (ofLogits)
      exponentials = reduceShifted<Team>(exponentials);
    if (Team::thread() == 0) {
      const float shift =
          ofLogits ? static_cast<float>(exponentials.shift) + scalar::log(static_cast<float>(exponentials.sum)) : 0.0f;
      terms[row] = termOf(shape, own, labels[row], shift, sum);
      if constexpr (ofLogits)
        lse[row] = shift;
    }
  }
}

/// The terms of a row's derivative that are the same for all elements.
struct RowGradient {
  float scale, shift; ///< of exp(x - shift)
  float everyClass;   ///< subtracted, before scaling, from every element
  float ofLabel;      ///< subtracted from the label's element, already scaled
  float perCap;       ///< 1 / softcap, or 0
  std::int64_t label;
  bool isFilled; ///< all elements are `fill` instead: the row is ignored, or its label is no class
  float fill;
};

__device__ RowGradient slopeOf(const LossShape &shape, float dterm, float lse, std::int64_t label) {
  const bool ignored = label == shape.ignoreIndex, counts = !ignored && isClass(shape, label);
  const float smoothing = static_cast<float>(shape.labelSmoothing);
  return {dterm,
          lse,
          smoothing / static_cast<float>(shape.classes),
          dterm * (1 - smoothing),
          shape.softcap > 0 ? 1 / shape.softcap : 0.0f,
          label,
          !counts,
          ignored ? 0.0f : scalar::notANumber};
}

/// values: x, in place.
template <bool ofLogits, class Pack>
__device__ void differentiate(const RowGradient &slope, Pack pack, float (&values)[Pack::width]) {
  for (int i = 0; i < Pack::width; ++i) {
    const float probability = ofLogits ? scalar::exp(values[i] - slope.shift) : 0.0f;
    const float all = slope.scale * (probability - slope.everyClass);
    const float one = pack.at(i) == slope.label ? all - slope.ofLabel : all;
    const float capped = values[i] * slope.perCap, counted = slope.perCap > 0 ? one * (1 - capped * capped) : one;
    values[i] = slope.isFilled ? slope.fill : counted;
  }
}

/// dx may be x; negative log-likelihood reads neither x nor lse.
template <bool ofLogits, class Rows, class T>
__global__ void lossGradient(LossShape shape, const float *dterms, const T *x, const std::int64_t *labels,
                             const float *lse, T *dx) {
  using Team = typename Rows::Team;
  for (std::int64_t row = Team::firstRow(); row < shape.rows; row += Team::rowStep()) {
    const RowGradient slope = slopeOf(shape, dterms[row], ofLogits ? lse[row] : 0.0f, labels[row]);
    const std::int64_t start = row * shape.classes;
    Rows::forEachPack(shape.classes, [&](auto pack) {
      float values[pack.width] = {};
      if constexpr (ofLogits)
        load(x + start, pack, values);
      differentiate<ofLogits>(slope, pack, values);
      store(values, dx + start, pack);
    });
  }
}

template <bool ofLogits, class T>
void forward(const Context &c, const LossShape &shape, const T *x, const std::int64_t *labels, float *terms,
             float *lse) {
  if (shape.rows == 0)
    return;
  const auto start = [&](auto rows, const Grid &grid) {
    launch(c, grid, lossTerms<ofLogits, decltype(rows), T>, shape, x, labels, terms, lse);
  };
  const bool readsRows = ofLogits || shape.labelSmoothing != 0;
  withRowGeometry(c, shape.rows, readsRows ? shape.classes : 0, start, x);
}

template <bool ofLogits, class T>
void backward(const Context &c, const LossShape &shape, const float *dterms, const T *x, const std::int64_t *labels,
              const float *lse, T *dx) {
  if (shape.rows * shape.classes == 0)
    return;
  const auto start = [&](auto rows, const Grid &grid) {
    launch(c, grid, lossGradient<ofLogits, decltype(rows), T>, shape, dterms, x, labels, lse, dx);
  };
  withRowGeometry(c, shape.rows, shape.classes, start, x, dx);
}

} // namespace

template <class T>
void crossEntropy(const Context &c, const LossShape &shape, const T *logits, const std::int64_t *labels, float *terms,
                  float *lse) {
  forward<true>(c, shape, logits, labels, terms, lse);
}

template <class T>
void crossEntropyGrad(const Context &c, const LossShape &shape, const float *dterms, const T *logits,
                      const std::int64_t *labels, const float *lse, T *dlogits) {
  backward<true>(c, shape, dterms, logits, labels, lse, dlogits);
}

template <class T>
void nll(const Context &c, const LossShape &shape, const T *logProbabilities, const std::int64_t *labels,
         float *terms) {
  forward<false>(c, shape, logProbabilities, labels, terms, nullptr);
}

template <class T>
void nllGrad(const Context &c, const LossShape &shape, const float *dterms, const std::int64_t *labels,
             T *dLogProbabilities) {
  backward<false>(c, shape, dterms, static_cast<const T *>(nullptr), labels, nullptr, dLogProbabilities);
}

#define FSDPC_LOSS(T)                                                                                                  \
  template void crossEntropy(const Context &, const LossShape &, const T *, const std::int64_t *, float *, float *);   \
  template void crossEntropyGrad(const Context &, const LossShape &, const float *, const T *, const std::int64_t *,   \
                                 const float *, T *);                                                                  \
  template void nll(const Context &, const LossShape &, const T *, const std::int64_t *, float *);                     \
  template void nllGrad(const Context &, const LossShape &, const float *, const std::int64_t *, T *);
FSDPC_LOSS(float)
FSDPC_LOSS(Bfloat16)
FSDPC_LOSS(Float16)

} // namespace fsdpc::rt
