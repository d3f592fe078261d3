// Copies between the device and its host's pinned arena, on the stream of Channel::copy: started, and waited for by the
// compute stream.
#pragma once

#include "runtime/cuda/collectives.h"

#include <span>

namespace fsdpc::rt {

/// The end of the last copy that was started here.
struct Copy {
  Event ended;
};

/// Once, in start().
void createCopies(const Context &context, std::span<Copy> copies);
void offloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
void reloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes);
/// Compute goes on when the copy has ended; at once if all streams were joined since its start.
void wait(const Context &context, const Copy &copy);

} // namespace fsdpc::rt
