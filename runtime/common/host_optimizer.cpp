#include "runtime/common/host_optimizer.h"

#include "runtime/common/parallel.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::rt::host {

namespace {

constexpr std::int64_t grain = 8192;

inline float squareRoot(float x) { return __builtin_sqrtf(x); }
inline double squareRoot(double x) { return __builtin_sqrt(x); }
inline double optional(const double *scalar) { return scalar ? *scalar : 0; }

/// The default of 1 changes no bit.
template <class T>
T scaleOf(const UpdateGuard &guard) {
  return guard.scale ? static_cast<T>(*guard.scale) : T(1);
}

/// A tensor and the result that replaces it. Null for absent state.
template <class T>
struct Kept {
  const T *from;
  T *to;
};

/// Returns whether the guard skips the step. If so, copies the operands to the results.
template <class T, std::size_t count>
bool isSkipped(const UpdateGuard &guard, std::int64_t begin, std::int64_t end, const Kept<T> (&tensors)[count]) {
  if (!guard.applies || *guard.applies)
    return false;
  for (const Kept<T> &tensor : tensors)
    if (tensor.to && tensor.to != tensor.from)
      std::copy(tensor.from + begin, tensor.from + end, tensor.to + begin);
  return true;
}

/// Same as torch.lerp: a formula that is exact at both ends.
template <class T>
inline T lerp(T from, T to, T weight) {
  return weight < T(0.5) ? from + weight * (to - from) : to - (to - from) * (1 - weight);
}

/// Called per range, while the new parameters are still in the cache.
template <class Half, class T>
void roundInto(const T *parameters, std::int64_t begin, std::int64_t end, Half *copy) {
  if (!copy)
    return;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i)
    storeRounded(copy[i], static_cast<float>(parameters[i]));
}
template <class T>
void roundInto(const T *parameters, std::int64_t begin, std::int64_t end, const LowPrecision &copy) {
  roundInto(parameters, begin, end, copy.bf16);
  roundInto(parameters, begin, end, copy.f16);
}

template <class T>
void averageInto(const UpdateGuard &guard, const T *parameters, std::int64_t begin, std::int64_t end,
                 const WeightAverage<T> &average) {
  if (!average.to || isSkipped<T>(guard, begin, end, {{average.from, average.to}}))
    return;
  const T weight = average.weight();
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i)
    average.to[i] = lerp(average.from[i], parameters[i], weight);
}

template <bool hasMomentum, bool nesterov, class T, class G>
void sgdRange(std::int64_t begin, std::int64_t end, const SgdScalars &s, const T *p, const G *g, const T *m, T *pOut,
              T *mOut) {
  const T lr = static_cast<T>(-*s.lr), decay = static_cast<T>(*s.weightDecay);
  const T momentum = static_cast<T>(optional(s.momentum)), keep = static_cast<T>(1 - optional(s.dampening));
  const bool first = hasMomentum && *s.step == 1;
  const T scale = scaleOf<T>(s.guard);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    T slope = elementAs<T>(g[i]) * scale + decay * p[i];
    if constexpr (hasMomentum) {
      const T buffer = first ? slope : m[i] * momentum + slope * keep;
      mOut[i] = buffer;
      slope = nesterov ? slope + momentum * buffer : buffer;
    }
    pOut[i] = p[i] + lr * slope;
  }
}

} // namespace

template <class T, class G>
void sgd(const Context &c, std::int64_t count, const SgdScalars &s, const T *p, const G *g,
         const std::type_identity_t<T> *m, T *pOut, std::type_identity_t<T> *mOut, LowPrecision copy,
         WeightAverage<T> weightAverage) {
  using Range = void (*)(std::int64_t, std::int64_t, const SgdScalars &, const T *, const G *, const T *, T *, T *);
  const Range range = !mOut        ? sgdRange<false, false, T, G>
                      : s.nesterov ? sgdRange<true, true, T, G>
                                   : sgdRange<true, false, T, G>;
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    if (!isSkipped<T>(s.guard, begin, end, {{p, pOut}, {m, mOut}}))
      range(begin, end, s, p, g, m, pOut, mOut);
    roundInto(pOut, begin, end, copy);
    averageInto(s.guard, pOut, begin, end, weightAverage);
  });
}

template <class T, class G>
void adam(const Context &c, std::int64_t count, const AdamScalars &s, const T *p, const G *g, const T *m, const T *v,
          T *pOut, T *mOut, T *vOut, LowPrecision copy, WeightAverage<T> weightAverage) {
  const double correction1 = 1 - std::pow(*s.beta1, static_cast<double>(*s.step));
  const double correction2 = 1 - std::pow(*s.beta2, static_cast<double>(*s.step));
  const T keep = s.decoupled ? static_cast<T>(1 - *s.lr * *s.weightDecay) : 1;
  const T decay = s.decoupled ? 0 : static_cast<T>(*s.weightDecay);
  const T weight1 = static_cast<T>(1 - *s.beta1), weight2 = static_cast<T>(1 - *s.beta2);
  const T beta2 = static_cast<T>(*s.beta2), epsilon = static_cast<T>(*s.epsilon);
  const T rootOfCorrection2 = static_cast<T>(std::sqrt(correction2));
  const T stepSize = static_cast<T>(-*s.lr / correction1);
  const T scale = scaleOf<T>(s.guard);
  const auto compute = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const T kept = p[i] * keep;
      const T slope = elementAs<T>(g[i]) * scale + decay * p[i];
      const T average = lerp(m[i], slope, weight1);
      const T square = v[i] * beta2 + weight2 * slope * slope;
      mOut[i] = average;
      vOut[i] = square;
      pOut[i] = kept + stepSize * average / (squareRoot(square) / rootOfCorrection2 + epsilon);
    }
  };
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    if (!isSkipped<T>(s.guard, begin, end, {{p, pOut}, {m, mOut}, {v, vOut}}))
      compute(begin, end);
    roundInto(pOut, begin, end, copy);
    averageInto(s.guard, pOut, begin, end, weightAverage);
  });
}

template <class T, class G>
void adadelta(const Context &c, std::int64_t count, const AdadeltaScalars &s, const T *p, const G *g, const T *square,
              const T *delta, T *pOut, T *squareOut, T *deltaOut, LowPrecision copy, WeightAverage<T> weightAverage) {
  const T decay = static_cast<T>(*s.weightDecay), rho = static_cast<T>(*s.rho);
  const T rest = static_cast<T>(1 - *s.rho), epsilon = static_cast<T>(*s.epsilon), lr = static_cast<T>(-*s.lr);
  const T scale = scaleOf<T>(s.guard);
  const auto compute = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const T slope = elementAs<T>(g[i]) * scale + decay * p[i];
      const T newSquare = square[i] * rho + rest * slope * slope;
      const T change = squareRoot(delta[i] + epsilon) / squareRoot(newSquare + epsilon) * slope;
      squareOut[i] = newSquare;
      deltaOut[i] = delta[i] * rho + rest * change * change;
      pOut[i] = p[i] + lr * change;
    }
  };
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    if (!isSkipped<T>(s.guard, begin, end, {{p, pOut}, {square, squareOut}, {delta, deltaOut}}))
      compute(begin, end);
    roundInto(pOut, begin, end, copy);
    averageInto(s.guard, pOut, begin, end, weightAverage);
  });
}

template <class T, class G>
void adagrad(const Context &c, std::int64_t count, const AdagradScalars &s, const T *p, const G *g, const T *sum,
             T *pOut, T *sumOut, LowPrecision copy, WeightAverage<T> weightAverage) {
  const T decay = static_cast<T>(*s.weightDecay), epsilon = static_cast<T>(*s.epsilon);
  const T lr = static_cast<T>(-*s.lr / (1 + static_cast<double>(*s.step - 1) * *s.lrDecay));
  const T scale = scaleOf<T>(s.guard);
  const auto compute = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const T slope = elementAs<T>(g[i]) * scale + decay * p[i];
      const T newSum = sum[i] + slope * slope;
      sumOut[i] = newSum;
      pOut[i] = p[i] + lr * slope / (squareRoot(newSum) + epsilon);
    }
  };
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    if (!isSkipped<T>(s.guard, begin, end, {{p, pOut}, {sum, sumOut}}))
      compute(begin, end);
    roundInto(pOut, begin, end, copy);
    averageInto(s.guard, pOut, begin, end, weightAverage);
  });
}

namespace {

template <bool hasMomentum, bool centered, class T, class G>
void rmspropRange(std::int64_t begin, std::int64_t end, const RmspropScalars &s, const T *p, const G *g,
                  const T *square, const T *m, const T *average, T *pOut, T *squareOut, T *mOut, T *averageOut) {
  const T decay = static_cast<T>(*s.weightDecay), alpha = static_cast<T>(*s.alpha);
  const T rest = static_cast<T>(1 - *s.alpha), epsilon = static_cast<T>(*s.epsilon);
  const T lr = static_cast<T>(-*s.lr), momentum = static_cast<T>(optional(s.momentum));
  const T scale = scaleOf<T>(s.guard);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const T slope = elementAs<T>(g[i]) * scale + decay * p[i];
    const T newSquare = square[i] * alpha + rest * slope * slope;
    squareOut[i] = newSquare;
    T spread = newSquare;
    if constexpr (centered) {
      const T newAverage = lerp(average[i], slope, rest);
      averageOut[i] = newAverage;
      spread = newSquare - newAverage * newAverage;
    }
    const T root = squareRoot(spread) + epsilon;
    if constexpr (hasMomentum) {
      mOut[i] = m[i] * momentum + slope / root;
      pOut[i] = p[i] + lr * mOut[i];
    } else {
      pOut[i] = p[i] + lr * slope / root;
    }
  }
}

} // namespace

template <class T, class G>
void rmsprop(const Context &c, std::int64_t count, const RmspropScalars &s, const T *p, const G *g, const T *square,
             const std::type_identity_t<T> *m, const std::type_identity_t<T> *average, T *pOut, T *squareOut,
             std::type_identity_t<T> *mOut, std::type_identity_t<T> *averageOut, LowPrecision copy,
             WeightAverage<T> weightAverage) {
  using Range = void (*)(std::int64_t, std::int64_t, const RmspropScalars &, const T *, const G *, const T *, const T *,
                         const T *, T *, T *, T *, T *);
  const Range range = mOut ? (averageOut ? rmspropRange<true, true, T, G> : rmspropRange<true, false, T, G>)
                           : (averageOut ? rmspropRange<false, true, T, G> : rmspropRange<false, false, T, G>);
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    if (!isSkipped<T>(s.guard, begin, end, {{p, pOut}, {square, squareOut}, {m, mOut}, {average, averageOut}}))
      range(begin, end, s, p, g, square, m, average, pOut, squareOut, mOut, averageOut);
    roundInto(pOut, begin, end, copy);
    averageInto(s.guard, pOut, begin, end, weightAverage);
  });
}

template <class T, class G>
void lion(const Context &c, std::int64_t count, const LionScalars &s, const T *p, const G *g, const T *m, T *pOut,
          T *mOut, LowPrecision copy, WeightAverage<T> weightAverage) {
  const T keep = static_cast<T>(1 - *s.lr * *s.weightDecay), lr = static_cast<T>(-*s.lr);
  const T beta1 = static_cast<T>(*s.beta1), weight1 = static_cast<T>(1 - *s.beta1);
  const T beta2 = static_cast<T>(*s.beta2), weight2 = static_cast<T>(1 - *s.beta2);
  const T scale = scaleOf<T>(s.guard);
  const auto compute = [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const T slope = elementAs<T>(g[i]) * scale, old = m[i];
      const T direction = old * beta1 + weight1 * slope;
      const T sign = direction > 0 ? T(1) : direction < 0 ? T(-1) : direction;
      mOut[i] = old * beta2 + weight2 * slope;
      pOut[i] = p[i] * keep + lr * sign;
    }
  };
  parallelFor(c, count, grain, [=, &s](std::int64_t begin, std::int64_t end) {
    if (!isSkipped<T>(s.guard, begin, end, {{p, pOut}, {m, mOut}}))
      compute(begin, end);
    roundInto(pOut, begin, end, copy);
    averageInto(s.guard, pOut, begin, end, weightAverage);
  });
}

#define FSDPC_OPTIMIZERS(T, G)                                                                                         \
  template void sgd(const Context &, std::int64_t, const SgdScalars &, const T *, const G *, const T *, T *, T *,      \
                    LowPrecision, WeightAverage<T>);                                                                   \
  template void adam(const Context &, std::int64_t, const AdamScalars &, const T *, const G *, const T *, const T *,   \
                     T *, T *, T *, LowPrecision, WeightAverage<T>);                                                   \
  template void adadelta(const Context &, std::int64_t, const AdadeltaScalars &, const T *, const G *, const T *,      \
                         const T *, T *, T *, T *, LowPrecision, WeightAverage<T>);                                    \
  template void adagrad(const Context &, std::int64_t, const AdagradScalars &, const T *, const G *, const T *, T *,   \
                        T *, LowPrecision, WeightAverage<T>);                                                          \
  template void rmsprop(const Context &, std::int64_t, const RmspropScalars &, const T *, const G *, const T *,        \
                        const T *, const T *, T *, T *, T *, T *, LowPrecision, WeightAverage<T>);                     \
  template void lion(const Context &, std::int64_t, const LionScalars &, const T *, const G *, const T *, T *, T *,    \
                     LowPrecision, WeightAverage<T>);
FSDPC_OPTIMIZERS(float, float)
FSDPC_OPTIMIZERS(float, Bfloat16)
FSDPC_OPTIMIZERS(float, Float16)
FSDPC_OPTIMIZERS(double, double)

} // namespace fsdpc::rt::host
