// Copies between the arenas that represent device memory and the arena `host`, on a dedicated stream. They are started
// and waited for, as on a device.
#pragma once

#include "runtime/common/program.h"

#include <cstdint>

namespace fsdpc::rt {

/// The last copy started by this statement.
struct Copy {
  std::uint64_t event = 0; ///< on CpuContext::copyStream
};

void offloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
void reloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
/// Returns when this copy and all copies started before it have finished.
void wait(const Context &context, const Copy &copy);

} // namespace fsdpc::rt
