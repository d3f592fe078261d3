// Copies between the device and its host's pinned arena, on the stream of Channel::copy. The compute stream waits for
// their end.
#pragma once

#include "runtime/cuda/collectives.h"

#include <span>

namespace fsdpc::rt {

/// The end of the last copy started with this object.
struct Copy {
  Event ended;
};

/// Called once, in start().
void createCopies(const Context &context, std::span<Copy> copies);
void offloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
void reloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
/// Makes compute wait for the copy. No wait is needed if all streams were joined since its start.
void wait(const Context &context, const Copy &copy);

} // namespace fsdpc::rt
