#include "runtime/cuda/index_faults.h"

#include "runtime/common/index_fault.h"

#include <atomic>

namespace fsdpc::rt {

void requireNoIndexFault(const Device &device) {
  const unsigned long long word = std::atomic_ref(*device.indexFault).load(std::memory_order_acquire);
  if (word == IndexFaults::none)
    return;
  const std::int64_t most = std::int64_t{1} << (IndexFaults::indexBits - 1);
  const auto index = static_cast<std::int64_t>(word & ((1ull << IndexFaults::indexBits) - 1)) - most;
  const unsigned long long place = word >> IndexFaults::indexBits;
  const auto axis = static_cast<std::size_t>(place & ((1u << IndexFaults::axisBits) - 1));
  const auto node = static_cast<std::size_t>(place >> IndexFaults::axisBits);
  const auto nodes = programIndexNodes();
  const bool isKnown = node < nodes.size() && axis < static_cast<std::size_t>(nodes[node].axes.rank);
  throw indexFailure(isKnown ? static_cast<int>(node) : -1, index, isKnown ? nodes[node].axes.dims[axis] : 0);
}

} // namespace fsdpc::rt
