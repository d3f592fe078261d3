// Statistics of batch norm and the sums of its derivative, over the elements of a channel. The normalization itself is
// an emitted loop.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

namespace fsdpc::rt {

/// Scratch of both in bytes: none.
inline std::int64_t channelSumsScratchBytes(const ChannelShape &) { return 0; }

/// mean, variance [channels]: the population variance, of deviations from the mean. All sums are those of long_sum.h:
/// the error is at most 5 * 2^-24 of the sum of absolute terms, in addition to the roundings of each term.
void batchStatistics(const Context &c, const ChannelShape &shape, const float *x, float *mean, float *variance,
                     Workspace = {});

/// dot [channels]: the sums of dy * (x - mean); sum [channels]: of dy.
void batchNormGrad(const Context &c, const ChannelShape &shape, const float *dy, const float *x, const float *mean,
                   float *dot, float *sum, Workspace = {});

} // namespace fsdpc::rt
