// Elementwise sums of buffers of one device.
#pragma once

#include "tests/gpu/loopback/group.h"

namespace fsdpc::loopback {

/// Enqueues: every receiver's element i becomes the sum over the senders' elements i, in the senders' order. 16-bit
/// floats are added in float and rounded once. A receiver may be one of the senders. False for a type without a sum.
bool enqueueSum(cudaStream_t stream, const std::vector<const std::byte *> &senders,
                const std::vector<std::byte *> &receivers, std::size_t count, ncclDataType_t type);

} // namespace fsdpc::loopback
