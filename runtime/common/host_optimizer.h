// Optimizer updates, each one pass over a shard. Semantics and the order of roundings are those of torch.optim (single
// tensor, scalars in f64): scalar expressions are evaluated in f64 once per call and rounded to the parameter's type
// where torch does. State has the parameter's type T, float or double. Every result may alias its operand. The gradient
// type G is the parameter's type or, for float parameters, a 16-bit type. A guard in the scalars scales the gradient or
// skips the step. With `copy`, the same pass also stores the new parameter in 16 bits, for the next gather, and with
// `weightAverage` it updates a moving average of the parameters.
//
// Used where optimizer state is in host memory.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

#include <type_traits>

namespace fsdpc::rt::host {

/// Without momentum: `momentumBuffer` and `momentumBufferOut` are null.
template <class T, class G>
void sgd(const Context &c, std::int64_t count, const SgdScalars &scalars, const T *parameter, const G *gradient,
         const std::type_identity_t<T> *momentumBuffer, T *parameterOut, std::type_identity_t<T> *momentumBufferOut,
         LowPrecision copy = {}, WeightAverage<T> weightAverage = {});

template <class T, class G>
void adam(const Context &c, std::int64_t count, const AdamScalars &scalars, const T *parameter, const G *gradient,
          const T *average, const T *averageSquare, T *parameterOut, T *averageOut, T *averageSquareOut,
          LowPrecision copy = {}, WeightAverage<T> weightAverage = {});

template <class T, class G>
void adadelta(const Context &c, std::int64_t count, const AdadeltaScalars &scalars, const T *parameter,
              const G *gradient, const T *averageSquare, const T *accumulatedDelta, T *parameterOut,
              T *averageSquareOut, T *accumulatedDeltaOut, LowPrecision copy = {}, WeightAverage<T> weightAverage = {});

template <class T, class G>
void adagrad(const Context &c, std::int64_t count, const AdagradScalars &scalars, const T *parameter, const G *gradient,
             const T *sum, T *parameterOut, T *sumOut, LowPrecision copy = {}, WeightAverage<T> weightAverage = {});

/// `momentumBuffer` is null without momentum, and `averageGradient` is null unless centered. The same holds for their
/// results.
template <class T, class G>
void rmsprop(const Context &c, std::int64_t count, const RmspropScalars &scalars, const T *parameter, const G *gradient,
             const T *averageSquare, const std::type_identity_t<T> *momentumBuffer,
             const std::type_identity_t<T> *averageGradient, T *parameterOut, T *averageSquareOut,
             std::type_identity_t<T> *momentumBufferOut, std::type_identity_t<T> *averageGradientOut,
             LowPrecision copy = {}, WeightAverage<T> weightAverage = {});

template <class T, class G>
void lion(const Context &c, std::int64_t count, const LionScalars &scalars, const T *parameter, const G *gradient,
          const T *average, T *parameterOut, T *averageOut, LowPrecision copy = {},
          WeightAverage<T> weightAverage = {});

} // namespace fsdpc::rt::host
