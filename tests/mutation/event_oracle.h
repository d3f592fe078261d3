// Checks by brute force whether a plan is ordered on the device: all pairs of operations of a few steps. The reference
// for passes/check/event_order, which uses clocks instead. Only feasible for small programs.
#pragma once

#include "ir/module.h"
#include <optional>

namespace fsdpc::mutation {

/// Programs with more operations are not checked.
inline constexpr size_t maxOperations = 6000;

/// Two nodes that may access a byte at the same time, at least one writing it; "" if there are none, nullopt if the
/// program is too large. Streams, events, waits, taps and joins are those of passes/check/event_order.h.
std::optional<std::string> findRace(const Module &planned);

} // namespace fsdpc::mutation
