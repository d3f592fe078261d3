// Constants of the program, stored in the device's memory with its code.
#pragma once

#include "runtime/cuda/device.h"

namespace fsdpc::rt {

template <std::size_t words>
void copyTable(const Context &c, const std::uint64_t (&table)[words], void *to, std::int64_t bytes) {
  checkCuda(cudaMemcpyFromSymbolAsync(to, table, static_cast<std::size_t>(bytes), 0, cudaMemcpyDeviceToDevice,
                                      deviceOf(c).compute),
            "cudaMemcpyFromSymbolAsync");
}

} // namespace fsdpc::rt
