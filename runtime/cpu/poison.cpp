#include "runtime/common/poison.h"

#include <cstring>

namespace fsdpc::rt {

void poison(const Context &context, Place place, std::int64_t bytes) {
  if (poisonsFreedMemory())
    std::memset(context.at<std::byte>(place), poisonByte, static_cast<std::size_t>(bytes));
}

} // namespace fsdpc::rt
