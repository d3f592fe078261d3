// How kernels tell of an index outside its axis: in a word of pinned memory of the host, which says nothing until then,
// so that a step without one costs nothing. The host reads it when it has what the step computed.
#pragma once

#include "runtime/cuda/device.h"

namespace fsdpc::rt {

/// What a kernel is given (kernels/index_position.h). The word holds node, axis of the tuple and index, the first of
/// several faults in this order: the same in every run.
struct IndexFaults {
  unsigned long long *word = nullptr;
  int node = -1; ///< as in the kernel's shape

  static constexpr unsigned long long none = ~0ull;
  static constexpr int indexBits = 40, axisBits = 4;
};

inline IndexFaults indexFaults(const Context &c, int node) { return {deviceOf(c).indexFault, node}; }

/// Throws Failure{corrupt} if a kernel has told of an index. What it enqueued must have ended.
void requireNoIndexFault(const Device &device);

} // namespace fsdpc::rt
