// How kernels report an index outside its axis: in a word of pinned host memory. A step without such an index costs
// nothing. The host reads the word when it has the step's results.
#pragma once

#include "runtime/cuda/device.h"

namespace fsdpc::rt {

/// Argument of kernels that check indices (kernels/index_position.h). The word encodes node, axis of the tuple and
/// index. Of several faults it keeps the first in this order, so it is the same in every run.
struct IndexFaults {
  unsigned long long *word = nullptr;
  int node = -1; ///< as in the kernel's shape

  static constexpr unsigned long long none = ~0ull;
  static constexpr int indexBits = 40, axisBits = 4;
};

inline IndexFaults indexFaults(const Context &c, int node) { return {deviceOf(c).indexFault, node}; }

/// Throws Failure{corrupt} if a kernel has reported an index. The kernels must have ended.
void requireNoIndexFault(const Device &device);

} // namespace fsdpc::rt
