#include "runtime/common/poison.h"

#include "runtime/cuda/device.h"

namespace fsdpc::rt {

void poison(const Context &context, Place place, std::int64_t bytes) {
  if (poisonsFreedMemory())
    checkCuda(cudaMemsetAsync(context.at<std::byte>(place), poisonByte, static_cast<std::size_t>(bytes),
                              deviceOf(context).compute),
              "cudaMemsetAsync");
}

} // namespace fsdpc::rt
