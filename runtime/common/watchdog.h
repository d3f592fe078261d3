// Ends a run that hangs, and reports where.
//
// One thread per rank reads the heartbeats (heartbeat.h) ten times a second. If no rank makes progress within the time
// limit of the phases, the lowest rank that is present and waits for another prints the message and the closing line
// and ends the run with exit code 6. Every rank writes comm_traces/rank_N.json first. Anything may hang: a stopped or
// killed peer, MPI, a file system. So this thread takes no lock that the main thread holds while it works, and calls
// nothing that may block. If ending the run hangs too, the process exits by itself.
//
// A process that was suspended (stopped and continued with its entire job, a suspended machine) finds every line old.
// It detects the gap and restarts its count. A program of one rank waits for no other rank and is not watched.
#pragma once

#include "runtime/common/heartbeat.h"
#include "runtime/common/launcher.h"
#include "runtime/common/platform.h"

#include <condition_variable>
#include <optional>
#include <thread>

namespace fsdpc::rt {

struct WatchdogLimits {
  double initSeconds = 300;  ///< phases start_up and saving
  double trainSeconds = 100; ///< phases data, step and evaluation
  double graceSeconds = 5;   ///< how long a rank lets another one report first, and how long ending may take
};

class Watchdog {
public:
  /// Starts the thread. `pulse` outlives this object.
  Watchdog(Pulse &pulse, WatchdogLimits limits, Launcher launcher);
  ~Watchdog();
  Watchdog(const Watchdog &) = delete;
  Watchdog &operator=(const Watchdog &) = delete;

  /// Called when the ranks have joined. From now on the watchdog sees the other ranks, if the platform shows them, and
  /// ends the run through it. Call `detach` before the platform is destroyed.
  void attach(Platform &platform);
  void detach();

  /// Ends the run of all ranks with a failure of this one. Only the first rank (and thread) that calls this reports;
  /// the others wait to be ended with it. Time-outs and disagreements write traces first, and are reported by the
  /// lowest rank that is not at fault.
  [[noreturn]] void end(const Failure &failure);

private:
  void watch();
  void look();
  bool hasPeers() const { return platform ? pulse.worldSize() > 1 : launcher.isKnown(); }
  double limitSeconds() const;
  [[noreturn]] void expire(double limit);
  /// Waits, for at most the grace period, until a preferred rank has ended the run.
  void deferReport(ExitCode code);
  void awaitTraces();
  void leaveIfEndingHangs(int exitCode);

  Pulse &pulse;
  const WatchdogLimits limits;
  const Launcher launcher;
  Platform *platform = nullptr;
  std::int64_t lastLook = 0;
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  std::atomic<bool> ending{false};
  std::thread thread;
};

/// Why no rank made progress for `seconds`, as this rank sees it, and which rank reports it.
struct Diagnosis {
  Failure failure;
  int reporter;
};
Diagnosis diagnose(Pulse &pulse, double seconds);

/// The rank that the others wait for, after `seconds` without progress on any rank: a rank that is stopped or has
/// ended, otherwise the one with the least progress. nullopt if it is this rank or may be one that this rank cannot
/// see.
std::optional<int> missingRank(Pulse &pulse, double seconds);

} // namespace fsdpc::rt
