// Copies between what stands for the device's memory and the arena `host`, on a stream of their own: started, and
// waited for, as on a device.
#pragma once

#include "runtime/common/program.h"

#include <cstdint>

namespace fsdpc::rt {

/// The last copy that was started here.
struct Copy {
  std::uint64_t event = 0; ///< of Context::copyStream
};

void offloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
void reloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
/// It has been carried out, and with it all that were started before.
void wait(const Context &context, const Copy &copy);

} // namespace fsdpc::rt
