// Is a plan ordered on the device? By brute force: all operations of a few steps, all pairs of them. The reference for
// passes/check/event_order, which keeps clocks instead; only small programs can be looked at.
#pragma once

#include "ir/module.h"
#include <optional>

namespace fsdpc::mutation {

/// More operations than this are not looked at.
inline constexpr size_t mostOperations = 6000;

/// Two nodes that may touch a byte at once, of which one writes; "" if there are none, nothing if the program is too
/// large. Streams, events, waits, taps and joins are those of passes/check/event_order.h.
std::optional<std::string> findRace(const Module &planned);

} // namespace fsdpc::mutation
