// One kernel for all optimizers. It streams parameter, gradient and state through registers in packs of 16 bytes and
// leaves the arithmetic to a rule. A rule has
//
//   Factors   values derived from the scalars, rounded where torch rounds; computed by one thread per block
//   next      the new parameter of one element, and its new state in place
//   scalars   whose guard scales the gradient, or keeps parameter and state unchanged
//
// Memory traffic bounds the time. A test per pack for absent buffers is therefore cheap, and is not compiled into
// variants.
#include "runtime/cuda/kernels/optimizer.h"

#include "runtime/cuda/kernels/scalar.h"
#include "runtime/cuda/launch.h"

#include <initializer_list>

namespace fsdpc::rt {

namespace {

// ---- rules

__device__ double valueOrZero(const double *scalar) { return scalar ? *scalar : 0; }

/// torch.lerp: its formula is exact at both ends.
template <class T>
__device__ T lerp(T from, T to, T weight) {
  return weight < T(0.5) ? from + weight * (to - from) : to - (to - from) * (1 - weight);
}

template <class T>
struct SgdRule {
  struct Factors {
    T lr, decay, momentum, keep;
    bool first;
  };
  SgdScalars scalars;
  bool hasMomentum;

  __device__ Factors factors() const {
    return {static_cast<T>(-*scalars.lr), static_cast<T>(*scalars.weightDecay),
            static_cast<T>(valueOrZero(scalars.momentum)), static_cast<T>(1 - valueOrZero(scalars.dampening)),
            hasMomentum && *scalars.step == 1};
  }
  __device__ T next(const Factors &f, T parameter, T gradient, T (&state)[1]) const {
    T slope = gradient + f.decay * parameter;
    if (hasMomentum) {
      const T buffer = f.first ? slope : state[0] * f.momentum + slope * f.keep;
      state[0] = buffer;
      slope = scalars.nesterov ? slope + f.momentum * buffer : buffer;
    }
    return parameter + f.lr * slope;
  }
};

template <class T>
struct AdamRule {
  struct Factors {
    T keep, decay, weight1, weight2, beta2, epsilon, rootOfCorrection2, stepSize;
  };
  AdamScalars scalars;

  __device__ Factors factors() const {
    const double step = static_cast<double>(*scalars.step);
    const double correction1 = 1 - scalar::pow(*scalars.beta1, step);
    const double correction2 = 1 - scalar::pow(*scalars.beta2, step);
    Factors f;
    f.keep = scalars.decoupled ? static_cast<T>(1 - *scalars.lr * *scalars.weightDecay) : T(1);
    f.decay = scalars.decoupled ? T(0) : static_cast<T>(*scalars.weightDecay);
    f.weight1 = static_cast<T>(1 - *scalars.beta1);
    f.weight2 = static_cast<T>(1 - *scalars.beta2);
    f.beta2 = static_cast<T>(*scalars.beta2);
    f.epsilon = static_cast<T>(*scalars.epsilon);
    f.rootOfCorrection2 = static_cast<T>(scalar::sqrt(correction2));
    f.stepSize = static_cast<T>(-*scalars.lr / correction1);
    return f;
  }
  __device__ T next(const Factors &f, T parameter, T gradient, T (&state)[2]) const {
    const T kept = parameter * f.keep;
    const T slope = gradient + f.decay * parameter;
    state[0] = lerp(state[0], slope, f.weight1);
    state[1] = state[1] * f.beta2 + f.weight2 * slope * slope;
    return kept + f.stepSize * state[0] / (scalar::sqrt(state[1]) / f.rootOfCorrection2 + f.epsilon);
  }
};

template <class T>
struct AdadeltaRule {
  struct Factors {
    T decay, rho, rest, epsilon, lr;
  };
  AdadeltaScalars scalars;

  __device__ Factors factors() const {
    return {static_cast<T>(*scalars.weightDecay), static_cast<T>(*scalars.rho), static_cast<T>(1 - *scalars.rho),
            static_cast<T>(*scalars.epsilon), static_cast<T>(-*scalars.lr)};
  }
  __device__ T next(const Factors &f, T parameter, T gradient, T (&state)[2]) const {
    const T slope = gradient + f.decay * parameter;
    const T square = state[0] * f.rho + f.rest * slope * slope;
    const T change = scalar::sqrt(state[1] + f.epsilon) / scalar::sqrt(square + f.epsilon) * slope;
    state[0] = square;
    state[1] = state[1] * f.rho + f.rest * change * change;
    return parameter + f.lr * change;
  }
};

template <class T>
struct AdagradRule {
  struct Factors {
    T decay, epsilon, lr;
  };
  AdagradScalars scalars;

  __device__ Factors factors() const {
    return {static_cast<T>(*scalars.weightDecay), static_cast<T>(*scalars.epsilon),
            static_cast<T>(-*scalars.lr / (1 + static_cast<double>(*scalars.step - 1) * *scalars.lrDecay))};
  }
  __device__ T next(const Factors &f, T parameter, T gradient, T (&state)[1]) const {
    const T slope = gradient + f.decay * parameter;
    state[0] = state[0] + slope * slope;
    return parameter + f.lr * slope / (scalar::sqrt(state[0]) + f.epsilon);
  }
};

template <class T>
struct LionRule {
  struct Factors {
    T keep, beta1, weight1, beta2, weight2, lr;
  };
  LionScalars scalars;

  __device__ Factors factors() const {
    return {static_cast<T>(1 - *scalars.lr * *scalars.weightDecay),
            static_cast<T>(*scalars.beta1),
            static_cast<T>(1 - *scalars.beta1),
            static_cast<T>(*scalars.beta2),
            static_cast<T>(1 - *scalars.beta2),
            static_cast<T>(-*scalars.lr)};
  }
  __device__ T next(const Factors &f, T parameter, T gradient, T (&state)[1]) const {
    const T direction = state[0] * f.beta1 + f.weight1 * gradient;
    const T sign = direction > 0 ? T(1) : direction < 0 ? T(-1) : direction;
    state[0] = state[0] * f.beta2 + f.weight2 * gradient;
    return parameter * f.keep + f.lr * sign;
  }
};

/// State: average square, momentum buffer, average gradient.
template <class T>
struct RmspropRule {
  struct Factors {
    T decay, alpha, rest, epsilon, lr, momentum;
  };
  RmspropScalars scalars;
  bool hasMomentum, centered;

  __device__ Factors factors() const {
    return {static_cast<T>(*scalars.weightDecay), static_cast<T>(*scalars.alpha),
            static_cast<T>(1 - *scalars.alpha),   static_cast<T>(*scalars.epsilon),
            static_cast<T>(-*scalars.lr),         static_cast<T>(valueOrZero(scalars.momentum))};
  }
  __device__ T next(const Factors &f, T parameter, T gradient, T (&state)[3]) const {
    const T slope = gradient + f.decay * parameter;
    state[0] = state[0] * f.alpha + f.rest * slope * slope;
    T spread = state[0];
    if (centered) {
      state[2] = lerp(state[2], slope, f.rest);
      spread = state[0] - state[2] * state[2];
    }
    const T root = scalar::sqrt(spread) + f.epsilon;
    if (!hasMomentum)
      return parameter + f.lr * slope / root;
    state[1] = state[1] * f.momentum + slope / root;
    return parameter + f.lr * state[1];
  }
};

// ---- the pass

/// Absent buffers are null.
template <class T, class G, int states>
struct Tensors {
  const T *parameter;
  const G *gradient;
  const T *state[states];
  T *parameterOut, *stateOut[states];
  LowPrecision lowPrecision;
  WeightAverage<T> average;
};

template <class T, int width>
struct alignas(sizeof(T) * width) Pack {
  T values[width];
};

template <int width, class T>
__device__ Pack<T, width> load(const T *from, std::int64_t pack) {
  return from ? reinterpret_cast<const Pack<T, width> *>(from)[pack] : Pack<T, width>{};
}
template <int width, class T>
__device__ void store(const Pack<T, width> &values, T *to, std::int64_t pack) {
  if (to)
    reinterpret_cast<Pack<T, width> *>(to)[pack] = values;
}

/// The guard's decision and the weight of the moving average, for all elements.
template <class T>
struct Held {
  T scale;
  bool applies;
  T averageWeight;
};

template <class T>
__device__ Held<T> heldBy(const UpdateGuard &guard, const WeightAverage<T> &average) {
  return {guard.scale ? static_cast<T>(*guard.scale) : T(1), !guard.applies || *guard.applies,
          average.to ? average.weight() : T(0)};
}

template <int width, class T, class G, int states, class Rule>
__device__ void updatePack(const Tensors<T, G, states> &tensors, const Rule &rule,
                           const typename Rule::Factors &factors, const Held<T> &held, std::int64_t pack) {
  const Pack<G, width> gradient = load<width>(tensors.gradient, pack);
  Pack<T, width> parameter = load<width>(tensors.parameter, pack), state[states];
  for (int s = 0; s < states; ++s)
    state[s] = load<width>(tensors.state[s], pack);
  Pack<T, width> average = load<width>(tensors.average.from, pack);
  Pack<Bfloat16, width> rounded;
  Pack<Float16, width> roundedHalf;
  for (int i = 0; i < width; ++i) {
    T own[states];
    for (int s = 0; s < states; ++s)
      own[s] = state[s].values[i];
    const T next = rule.next(factors, parameter.values[i], elementAs<T>(gradient.values[i]) * held.scale, own);
    parameter.values[i] = held.applies ? next : parameter.values[i];
    rounded.values[i] = scalar::cast<Bfloat16>(parameter.values[i]);
    roundedHalf.values[i] = scalar::cast<Float16>(parameter.values[i]);
    if (held.applies)
      average.values[i] = lerp(average.values[i], parameter.values[i], held.averageWeight);
    for (int s = 0; s < states; ++s)
      state[s].values[i] = held.applies ? own[s] : state[s].values[i];
  }
  store<width>(parameter, tensors.parameterOut, pack);
  store<width>(rounded, tensors.lowPrecision.bf16, pack);
  store<width>(roundedHalf, tensors.lowPrecision.f16, pack);
  store<width>(average, tensors.average.to, pack);
  for (int s = 0; s < states; ++s)
    store<width>(state[s], tensors.stateOut[s], pack);
}

template <int width, class T, class G, int states, class Rule>
__global__ void update(std::int64_t count, Tensors<T, G, states> tensors, Rule rule) {
  __shared__ typename Rule::Factors shared;
  if (threadIdx.x == 0)
    shared = rule.factors();
  __syncthreads();
  const typename Rule::Factors factors = shared;
  const Held<T> held = heldBy<T>(rule.scalars.guard, tensors.average);
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x, packs = count / width;
  for (std::int64_t pack = thread; pack < packs; pack += step)
    updatePack<width>(tensors, rule, factors, held, pack);
  for (std::int64_t i = packs * width + thread; i < count; i += step)
    updatePack<1>(tensors, rule, factors, held, i);
}

template <class T, class G, int states>
bool isAligned(const Tensors<T, G, states> &tensors) {
  std::uintptr_t all = reinterpret_cast<std::uintptr_t>(tensors.parameter) |
                       reinterpret_cast<std::uintptr_t>(tensors.gradient) * (sizeof(T) / sizeof(G)) |
                       reinterpret_cast<std::uintptr_t>(tensors.parameterOut) |
                       reinterpret_cast<std::uintptr_t>(tensors.average.from) |
                       reinterpret_cast<std::uintptr_t>(tensors.average.to) |
                       reinterpret_cast<std::uintptr_t>(tensors.lowPrecision.bf16) * (sizeof(T) / sizeof(Bfloat16)) |
                       reinterpret_cast<std::uintptr_t>(tensors.lowPrecision.f16) * (sizeof(T) / sizeof(Float16));
  for (int s = 0; s < states; ++s)
    all |= reinterpret_cast<std::uintptr_t>(tensors.state[s]) | reinterpret_cast<std::uintptr_t>(tensors.stateOut[s]);
  return all % 16 == 0;
}

template <class T, class G, int states, class Rule>
void run(const Context &c, std::int64_t count, const Tensors<T, G, states> &tensors, const Rule &rule) {
  constexpr int width = 16 / sizeof(T);
  if (count == 0)
    return;
  if (isAligned(tensors))
    launch(c, gridFor(c, (count + width - 1) / width), update<width, T, G, states, Rule>, count, tensors, rule);
  else
    launch(c, gridFor(c, count), update<1, T, G, states, Rule>, count, tensors, rule);
}

} // namespace

template <class T, class G>
void sgd(const Context &c, std::int64_t count, const SgdScalars &scalars, const T *parameter, const G *gradient,
         const std::type_identity_t<T> *momentumBuffer, T *parameterOut, std::type_identity_t<T> *momentumBufferOut,
         LowPrecision lowPrecision, WeightAverage<T> weightAverage) {
  const Tensors<T, G, 1> tensors = {parameter,           gradient,     {momentumBuffer}, parameterOut,
                                    {momentumBufferOut}, lowPrecision, weightAverage};
  run(c, count, tensors, SgdRule<T>{scalars, momentumBufferOut != nullptr});
}

template <class T, class G>
void adam(const Context &c, std::int64_t count, const AdamScalars &scalars, const T *parameter, const G *gradient,
          const T *average, const T *averageSquare, T *parameterOut, T *averageOut, T *averageSquareOut,
          LowPrecision lowPrecision, WeightAverage<T> weightAverage) {
  const Tensors<T, G, 2> tensors = {
      parameter,    gradient,     {average, averageSquare}, parameterOut, {averageOut, averageSquareOut},
      lowPrecision, weightAverage};
  run(c, count, tensors, AdamRule<T>{scalars});
}

template <class T, class G>
void adadelta(const Context &c, std::int64_t count, const AdadeltaScalars &scalars, const T *parameter,
              const G *gradient, const T *averageSquare, const T *accumulatedDelta, T *parameterOut,
              T *averageSquareOut, T *accumulatedDeltaOut, LowPrecision lowPrecision, WeightAverage<T> weightAverage) {
  const Tensors<T, G, 2> tensors = {parameter,
                                    gradient,
                                    {averageSquare, accumulatedDelta},
                                    parameterOut,
                                    {averageSquareOut, accumulatedDeltaOut},
                                    lowPrecision,
                                    weightAverage};
  run(c, count, tensors, AdadeltaRule<T>{scalars});
}

template <class T, class G>
void adagrad(const Context &c, std::int64_t count, const AdagradScalars &scalars, const T *parameter, const G *gradient,
             const T *sum, T *parameterOut, T *sumOut, LowPrecision lowPrecision, WeightAverage<T> weightAverage) {
  const Tensors<T, G, 1> tensors = {parameter, gradient, {sum}, parameterOut, {sumOut}, lowPrecision, weightAverage};
  run(c, count, tensors, AdagradRule<T>{scalars});
}

template <class T, class G>
void rmsprop(const Context &c, std::int64_t count, const RmspropScalars &scalars, const T *parameter, const G *gradient,
             const T *averageSquare, const std::type_identity_t<T> *momentumBuffer,
             const std::type_identity_t<T> *averageGradient, T *parameterOut, T *averageSquareOut,
             std::type_identity_t<T> *momentumBufferOut, std::type_identity_t<T> *averageGradientOut,
             LowPrecision lowPrecision, WeightAverage<T> weightAverage) {
  const Tensors<T, G, 3> tensors = {parameter,
                                    gradient,
                                    {averageSquare, momentumBuffer, averageGradient},
                                    parameterOut,
                                    {averageSquareOut, momentumBufferOut, averageGradientOut},
                                    lowPrecision,
                                    weightAverage};
  run(c, count, tensors, RmspropRule<T>{scalars, momentumBufferOut != nullptr, averageGradientOut != nullptr});
}

template <class T, class G>
void lion(const Context &c, std::int64_t count, const LionScalars &scalars, const T *parameter, const G *gradient,
          const T *average, T *parameterOut, T *averageOut, LowPrecision lowPrecision, WeightAverage<T> weightAverage) {
  const Tensors<T, G, 1> tensors = {parameter,    gradient,     {average},    parameterOut,
                                    {averageOut}, lowPrecision, weightAverage};
  run(c, count, tensors, LionRule<T>{scalars});
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

} // namespace fsdpc::rt
