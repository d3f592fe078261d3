// Ends a run that hangs, and says where.
//
// A thread per rank looks at the signs of life (heartbeat.h) ten times a second. When no rank has got on for the time
// that the phases allow, the lowest rank that is there and waits for another prints the message and the closing line
// and ends the run with exit code 6; every rank writes comm_traces/rank_N.json first. What hangs may be anything: a
// stopped or killed peer, MPI, a file system. So this thread takes no lock that the main thread holds while it works,
// and nothing it calls may keep it: should ending the run hang too, the process leaves by itself.
//
// A process that stood still itself (stopped and continued with its whole job, a suspended machine) finds every line
// old; it notices its own absence and starts counting anew. A program of one rank waits for nobody and is not watched.
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
  double graceSeconds = 5;   ///< how long a rank leaves the last word to another, and how long ending may take
};

class Watchdog {
public:
  /// Starts the thread. `pulse` outlives this object.
  Watchdog(Pulse &pulse, WatchdogLimits limits, Launcher launcher);
  ~Watchdog();
  Watchdog(const Watchdog &) = delete;
  Watchdog &operator=(const Watchdog &) = delete;

  /// The ranks have joined: from here on the watchdog sees the others, if the platform shows them, and ends the run
  /// through it. `detach` before it is destroyed.
  void attach(Platform &platform);
  void detach();

  /// Ends the run of all ranks with a failure of this one. Only the first rank (and thread) that comes here speaks;
  /// the others wait to be ended with it. Time-outs and disagreements leave traces, and there the lowest rank that is
  /// not to blame comes first.
  [[noreturn]] void end(const Failure &failure);

private:
  void watch();
  void look();
  bool hasPeers() const { return platform ? pulse.worldSize() > 1 : launcher.isKnown(); }
  double limitSeconds() const;
  [[noreturn]] void expire(double limit);
  /// Waits, for the grace at most, until a rank that is rather to speak has ended the run.
  void leaveWordToAnother(ExitCode code);
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

/// Why no rank got on for `seconds`, as this rank sees it, and which rank is to say so.
struct Diagnosis {
  Failure failure;
  int speaker;
};
Diagnosis diagnose(Pulse &pulse, double seconds);

/// The rank that the others wait for, after `seconds` in which none got on: one that is stopped or has ended, else the
/// one behind all others. Nothing if it is this rank, or may be one that this rank cannot see.
std::optional<int> missingRank(Pulse &pulse, double seconds);

} // namespace fsdpc::rt
