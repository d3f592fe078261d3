// Requests to save or to stop, from signals and clocks, and the agreement of all ranks on when to follow them.
//
// A signal may reach one rank only, and ranks read their clocks at different times. But all ranks must save after the
// same step. Between two boundaries of the training loop lies a collective of all ranks, so no rank is more than one
// boundary ahead of another. So a rank at boundary b asks for boundary b + 1, in memory that the ranks share: every
// rank sees that before it gets there, and no message is needed. Across hosts the ranks reduce their wishes instead.
#pragma once

#include "runtime/common/platform.h"

#include <cstdint>

namespace fsdpc::rt {

/// What a boundary can be asked for; bits.
inline constexpr std::uint8_t saveRequest = 1, stopRequest = 2;

/// From now on SIGUSR1, SIGTERM and SIGINT ask this process to save and stop. A second SIGINT ends it. Called before
/// the ranks join, so that a signal during start-up is not lost.
void catchStopSignals();
/// The signal that asked first; 0: none.
int stopSignal();

class RunRequests {
public:
  /// Collective.
  explicit RunRequests(Platform &platform);

  /// Every rank calls this after the same steps and evaluation batches; a collective of all ranks lies between two
  /// calls, or an earlier request could be overwritten before the last rank reads it. `wanted`: what this rank wishes
  /// for. Returns what all ranks do here. A wish may be followed one boundary later.
  std::uint8_t atBoundary(std::uint8_t wanted);

private:
  Platform &platform;
  HeartbeatPage *page = nullptr; ///< null: not every rank sees the others
  std::uint64_t boundary = 0;
};

} // namespace fsdpc::rt
