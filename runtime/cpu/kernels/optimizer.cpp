#include "runtime/cpu/kernels/optimizer.h"

#include "runtime/cpu/kernels/parallel.h"

#include <cmath>

namespace fsdpc::rt {

namespace {

constexpr std::int64_t grain = 8192;

/// torch.lerp: a formula that is exact at both ends.
inline float lerp(float from, float to, float weight) {
  return weight < 0.5f ? from + weight * (to - from) : to - (to - from) * (1 - weight);
}

template <bool hasMomentum, bool nesterov>
void sgdRange(std::int64_t begin, std::int64_t end, const SgdScalars &s, const float *p, const float *g, const float *m,
              float *pOut, float *mOut) {
  const float lr = static_cast<float>(-s.lr), decay = static_cast<float>(s.weightDecay);
  const float momentum = static_cast<float>(s.momentum), keep = static_cast<float>(1 - s.dampening);
  const bool first = s.step == 1;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    float slope = g[i] + decay * p[i];
    if constexpr (hasMomentum) {
      const float buffer = first ? slope : m[i] * momentum + slope * keep;
      mOut[i] = buffer;
      slope = nesterov ? slope + momentum * buffer : buffer;
    }
    pOut[i] = p[i] + lr * slope;
  }
}

} // namespace

void sgd(const Context &c, std::int64_t count, const SgdScalars &s, const float *p, const float *g, const float *m,
         float *pOut, float *mOut) {
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    if (!mOut)
      sgdRange<false, false>(begin, end, s, p, g, m, pOut, mOut);
    else if (s.nesterov)
      sgdRange<true, true>(begin, end, s, p, g, m, pOut, mOut);
    else
      sgdRange<true, false>(begin, end, s, p, g, m, pOut, mOut);
  });
}

void adam(const Context &c, std::int64_t count, const AdamScalars &s, const float *p, const float *g, const float *m,
          const float *v, float *pOut, float *mOut, float *vOut) {
  const double correction1 = 1 - std::pow(s.beta1, static_cast<double>(s.step));
  const double correction2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  const float keep = s.decoupled ? static_cast<float>(1 - s.lr * s.weightDecay) : 1;
  const float decay = s.decoupled ? 0 : static_cast<float>(s.weightDecay);
  const float weight1 = static_cast<float>(1 - s.beta1), weight2 = static_cast<float>(1 - s.beta2);
  const float beta2 = static_cast<float>(s.beta2), epsilon = static_cast<float>(s.epsilon);
  const float rootOfCorrection2 = static_cast<float>(std::sqrt(correction2));
  const float stepSize = static_cast<float>(-s.lr / correction1);
  parallelFor(c, count, grain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float kept = p[i] * keep;
      const float slope = g[i] + decay * p[i];
      const float average = lerp(m[i], slope, weight1);
      const float square = v[i] * beta2 + weight2 * slope * slope;
      mOut[i] = average;
      vOut[i] = square;
      pOut[i] = kept + stepSize * average / (__builtin_sqrtf(square) / rootOfCorrection2 + epsilon);
    }
  });
}

void adadelta(const Context &c, std::int64_t count, const AdadeltaScalars &s, const float *p, const float *g,
              const float *square, const float *delta, float *pOut, float *squareOut, float *deltaOut) {
  const float decay = static_cast<float>(s.weightDecay), rho = static_cast<float>(s.rho);
  const float rest = static_cast<float>(1 - s.rho), epsilon = static_cast<float>(s.epsilon),
              lr = static_cast<float>(-s.lr);
  parallelFor(c, count, grain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float slope = g[i] + decay * p[i];
      const float newSquare = square[i] * rho + rest * slope * slope;
      const float change = __builtin_sqrtf(delta[i] + epsilon) / __builtin_sqrtf(newSquare + epsilon) * slope;
      squareOut[i] = newSquare;
      deltaOut[i] = delta[i] * rho + rest * change * change;
      pOut[i] = p[i] + lr * change;
    }
  });
}

void adagrad(const Context &c, std::int64_t count, const AdagradScalars &s, const float *p, const float *g,
             const float *sum, float *pOut, float *sumOut) {
  const float decay = static_cast<float>(s.weightDecay), epsilon = static_cast<float>(s.epsilon);
  const float lr = static_cast<float>(-s.lr / (1 + static_cast<double>(s.step - 1) * s.lrDecay));
  parallelFor(c, count, grain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float slope = g[i] + decay * p[i];
      const float newSum = sum[i] + slope * slope;
      sumOut[i] = newSum;
      pOut[i] = p[i] + lr * slope / (__builtin_sqrtf(newSum) + epsilon);
    }
  });
}

namespace {

template <bool hasMomentum, bool centered>
void rmspropRange(std::int64_t begin, std::int64_t end, const RmspropScalars &s, const float *p, const float *g,
                  const float *square, const float *m, const float *average, float *pOut, float *squareOut, float *mOut,
                  float *averageOut) {
  const float decay = static_cast<float>(s.weightDecay), alpha = static_cast<float>(s.alpha);
  const float rest = static_cast<float>(1 - s.alpha), epsilon = static_cast<float>(s.epsilon);
  const float lr = static_cast<float>(-s.lr), momentum = static_cast<float>(s.momentum);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float slope = g[i] + decay * p[i];
    const float newSquare = square[i] * alpha + rest * slope * slope;
    squareOut[i] = newSquare;
    float spread = newSquare;
    if constexpr (centered) {
      const float newAverage = lerp(average[i], slope, rest);
      averageOut[i] = newAverage;
      spread = newSquare - newAverage * newAverage;
    }
    const float root = __builtin_sqrtf(spread) + epsilon;
    if constexpr (hasMomentum) {
      mOut[i] = m[i] * momentum + slope / root;
      pOut[i] = p[i] + lr * mOut[i];
    } else {
      pOut[i] = p[i] + lr * slope / root;
    }
  }
}

} // namespace

void rmsprop(const Context &c, std::int64_t count, const RmspropScalars &s, const float *p, const float *g,
             const float *square, const float *m, const float *average, float *pOut, float *squareOut, float *mOut,
             float *averageOut) {
  using Range = void (*)(std::int64_t, std::int64_t, const RmspropScalars &, const float *, const float *,
                         const float *, const float *, const float *, float *, float *, float *, float *);
  const Range range = mOut ? (averageOut ? rmspropRange<true, true> : rmspropRange<true, false>)
                           : (averageOut ? rmspropRange<false, true> : rmspropRange<false, false>);
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    range(begin, end, s, p, g, square, m, average, pOut, squareOut, mOut, averageOut);
  });
}

} // namespace fsdpc::rt
