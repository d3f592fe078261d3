// What batch_norm is made of, for its derivative and for the passes that write it out.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// Of a mean or variance per channel of x [N, C, ...]: f32[C], or f64[C] for x of f64.
Type batchStatisticType(const Type &x);

/// A vector over the channels of x [N, C, ...], stretched to the shape of x.
Value *alongChannels(Builder &builder, Value *vector, const Type &x);

/// 1 / sqrt(variance + epsilon)
Value *reciprocalDeviation(Builder &builder, Value *variance, double epsilon);

} // namespace fsdpc
