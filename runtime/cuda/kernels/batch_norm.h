// Statistics of batch norm and the sums of its derivative, over the elements of a channel. The norm itself is a loop of
// the program. T: float, Bfloat16 or Float16. Terms are float, accumulation is double.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/float16.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Scratch of both in bytes, exact.
std::int64_t channelSumsScratchBytes(const ChannelShape &shape);

/// mean, variance [channels]: the population variance. The order of summation depends on the shape only.
template <class T>
void batchStatistics(const Context &c, const ChannelShape &shape, const T *x, float *mean, float *variance,
                     Workspace workspace);

/// dot [channels]: the sums of dy * (x - mean); sum [channels]: of dy.
template <class T>
void batchNormGrad(const Context &c, const ChannelShape &shape, const T *dy, const T *x, const float *mean, float *dot,
                   float *sum, Workspace workspace);

} // namespace fsdpc::rt
