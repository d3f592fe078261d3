// Optimizer updates, one pass over a shard. Semantics and the order of roundings are those of the cpu target, and so
// those of torch.optim (single tensor, scalars in f64): scalar expressions are evaluated in f64 and rounded to the
// parameter's type where torch does. State has the parameter's type, T: float or double. Every result may alias its
// operand.
//
// The gradient has type G: the parameter's type or, if that is float, a 16-bit type.
//
// Scalars, including the step, are in device memory: the kernels read them, the host never does. A guard of the scalars
// scales the gradient, or suppresses the entire step. With `lowPrecision` the new parameter is also stored as Bfloat16
// in the same pass; the next gather sends this copy. With `weightAverage` it updates a moving average of the
// parameters.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

#include <type_traits>

namespace fsdpc::rt {

/// Without momentum, `momentumBuffer` and `momentumBufferOut` are null.
template <class T, class G>
void sgd(const Context &c, std::int64_t count, const SgdScalars &scalars, const T *parameter, const G *gradient,
         const std::type_identity_t<T> *momentumBuffer, T *parameterOut, std::type_identity_t<T> *momentumBufferOut,
         LowPrecision lowPrecision = {}, WeightAverage<T> weightAverage = {});

template <class T, class G>
void adam(const Context &c, std::int64_t count, const AdamScalars &scalars, const T *parameter, const G *gradient,
          const T *average, const T *averageSquare, T *parameterOut, T *averageOut, T *averageSquareOut,
          LowPrecision lowPrecision = {}, WeightAverage<T> weightAverage = {});

template <class T, class G>
void adadelta(const Context &c, std::int64_t count, const AdadeltaScalars &scalars, const T *parameter,
              const G *gradient, const T *averageSquare, const T *accumulatedDelta, T *parameterOut,
              T *averageSquareOut, T *accumulatedDeltaOut, LowPrecision lowPrecision = {},
              WeightAverage<T> weightAverage = {});

template <class T, class G>
void adagrad(const Context &c, std::int64_t count, const AdagradScalars &scalars, const T *parameter, const G *gradient,
             const T *sum, T *parameterOut, T *sumOut, LowPrecision lowPrecision = {},
             WeightAverage<T> weightAverage = {});

/// `momentumBuffer` is null without momentum, `averageGradient` unless centered; their results likewise.
template <class T, class G>
void rmsprop(const Context &c, std::int64_t count, const RmspropScalars &scalars, const T *parameter, const G *gradient,
             const T *averageSquare, const std::type_identity_t<T> *momentumBuffer,
             const std::type_identity_t<T> *averageGradient, T *parameterOut, T *averageSquareOut,
             std::type_identity_t<T> *momentumBufferOut, std::type_identity_t<T> *averageGradientOut,
             LowPrecision lowPrecision = {}, WeightAverage<T> weightAverage = {});

template <class T, class G>
void lion(const Context &c, std::int64_t count, const LionScalars &scalars, const T *parameter, const G *gradient,
          const T *average, T *parameterOut, T *averageOut, LowPrecision lowPrecision = {},
          WeightAverage<T> weightAverage = {});

} // namespace fsdpc::rt
