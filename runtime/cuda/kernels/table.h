// Constants of the program: small ones in the device's memory with its code, large ones in that of the host.
#pragma once

#include "runtime/cuda/device.h"

namespace fsdpc::rt {

template <std::size_t words>
void copyTable(const Context &c, const std::uint64_t (&table)[words], void *to, std::int64_t bytes) {
  checkCuda(cudaMemcpyFromSymbolAsync(to, table, static_cast<std::size_t>(bytes), 0, cudaMemcpyDeviceToDevice,
                                      deviceOf(c).compute),
            "cudaMemcpyFromSymbolAsync");
}

/// In the host's part of the program. Only start() copies such tables, so that it may wait for the host.
struct HostTable {
  const std::uint64_t *words;
};
inline void copyTable(const Context &c, HostTable table, void *to, std::int64_t bytes) {
  checkCuda(
      cudaMemcpyAsync(to, table.words, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, deviceOf(c).compute),
      "cudaMemcpyAsync");
}

} // namespace fsdpc::rt
