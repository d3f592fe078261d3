// Building blocks of batch_norm, for its derivative and for the passes that expand it.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// The type of a mean or variance per channel of x [N, C, ...]: f32[C], or f64[C] for x of f64.
Type batchStatisticType(const Type &x);

/// Broadcasts a vector over the channels of x [N, C, ...] to the shape of x.
Value *alongChannels(Builder &builder, Value *vector, const Type &x);

/// 1 / sqrt(variance + epsilon)
Value *reciprocalDeviation(Builder &builder, Value *variance, double epsilon);

} // namespace fsdpc
