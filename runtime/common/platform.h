// The services that the main program needs from a target: processes, arenas, host-side collectives outside the step,
// counters.
//
// Implemented once per target (runtime/cpu/platform.cpp). `main` starts the platform, checks the world size, and only
// then opens the arenas. Everything here except `abort`, `rank`, `worldSize` and the counters is collective: every rank
// calls it, in the same order. None of it is used inside a step, so none of it has to be fast. The collectives of the
// step belong to the program.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/heartbeat.h"
#include "runtime/common/json.h"
#include "runtime/common/program.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace fsdpc::rt {

enum class StreamMode : std::uint8_t {
  automatic, ///< threads where this host has more cores than ranks, else inline
  inlined,   ///< collectives run on the calling thread
  threads,   ///< one worker thread per stream
};

/// Checks and records of collectives, in addition to their times.
enum class DebugCollectives : std::uint8_t {
  off,
  sequence, ///< compares, before data moves, that every rank has reached the same collective
  detail,   ///< also hashes operands and results; common results are compared at the end
};

/// Whether the device replays the training step as one graph.
enum class StepReplay : std::uint8_t {
  automatic, ///< if the step can be captured
  on,        ///< if capture fails, the run ends with Failure{internal}
  off,
};

/// An artificially slow link, to show how much communication a schedule hides. The body of every collective sleeps for
/// microseconds + bytes / bytesPerMicrosecond (0: no such term). Bytes are those that a rank reads from all members of
/// the group: the full buffer, `members` times for all_reduce.
struct SlowLink {
  double microseconds = 0;
  double bytesPerMicrosecond = 0;
};

struct PlatformOptions {
  int threads = 0; ///< compute threads per rank; 0: cores / ranks of this host, at least 1
  StreamMode streams = StreamMode::automatic;
  double timeoutSeconds = 100; ///< how long a rank waits for another one in a collective before it ends the run
  Pulse *pulse = nullptr;      ///< receives the heartbeats and traces of collectives
  DebugCollectives debug = DebugCollectives::sequence;
  SlowLink slowLink;
  StepReplay stepReplay = StepReplay::automatic;
};

/// Accumulated since the last `takeCommunicationTimes`, on this rank.
struct CommunicationTimes {
  double communicationMicroseconds = 0; ///< while collectives were running
  double exposedMicroseconds = 0;       ///< blocked in `wait` after every rank had arrived
  /// Blocked in `wait` before every rank had arrived; nullopt: included in the exposed time.
  std::optional<double> skewMicroseconds = 0;
};

/// Memory of a rank outside its arenas: libraries (those of communication too), feeding, logging, gradients kept to be
/// saved. It is measured, because it is not planned. Negative: unknown.
struct OutsidePlan {
  std::int64_t bytes = -1; ///< in the planned memory: the device's, or the host's if the host is the device
  std::optional<std::int64_t> hostBytes; ///< in host memory if the device has its own
};

class Platform {
public:
  virtual ~Platform() = default; ///< unmaps, joins workers, finalizes the process group

  virtual int rank() const = 0;
  virtual int worldSize() const = 0;

  /// Maps and checks the arenas (contents unspecified: `main` initializes the state) and starts communicator, stream
  /// and library threads. Called once, with worldSize() == program.worldSize. The context lives as long as the
  /// platform, and its `threads` is the resolved number. Throws Failure{memory or device} with everyRank set: the ranks
  /// agree before throwing.
  virtual Context &openArenas(const ProgramInfo &program, const PlatformOptions &options) = 0;

  /// Runs `step`: the functions of one training step, and the fetches of its results. A platform with graphs may call
  /// it while it records, and later replay the recording without calling it, because `step` enqueues the same work in
  /// every step. `feeds` passes the same functions to `feed` as `step` does, in the same order, and does nothing else.
  /// `isMeasured`: record communication times and, with a profile, times of sections.
  virtual void runStep(const std::function<void()> &step, const std::function<void()> &feeds, bool isMeasured) {
    static_cast<void>(feeds);
    static_cast<void>(isMeasured);
    step();
  }
  /// Stores data between the functions of a step: `fill` stores one micro-batch (writeArena). The next function sees
  /// it, whether the step is called or replayed.
  virtual void feed(const std::function<void()> &fill) { fill(); }
  /// Called after the results of a function have been read. Ends the run if an index that the function computed is
  /// outside its axis, unless the kernel already failed. Throws Failure{corrupt}.
  virtual void checkIndices() {}
  /// Called after the step's result has been read. If the step was measured, waits for its end and keeps its times.
  virtual void finishStep() {}
  /// Returns decisions of the platform since the last call, as one line for the log; nullopt if there are none.
  virtual std::optional<JsonObject> takeNotice() { return std::nullopt; }

  virtual void barrier() = 0;
  /// Collective, called once, after the program's `start`. Ranks agree on the objects that were created there.
  virtual void finishStart(const std::string &outDirectory) { static_cast<void>(outDirectory); }
  virtual void broadcast(void *data, std::int64_t bytes) = 0; ///< from rank 0
  virtual std::int64_t maxOverRanks(std::int64_t value) = 0;
  virtual std::int64_t sumOverRanks(std::int64_t value) = 0;
  /// Rank 0 receives worldSize x `bytes` in rank order in `all` (null elsewhere).
  virtual void gatherToRoot(const void *mine, std::int64_t bytes, void *all) = 0;

  /// Updates this rank's heartbeat and trace with the progress of its device, if host calls do not show it. The
  /// watchdog calls it when no rank has made progress for a while. Callable from any thread.
  virtual void lookAtDevice() {}

  /// The heartbeat page that this rank shares with others; null if it cannot see other ranks.
  virtual HeartbeatPage *heartbeats() { return nullptr; }

  /// Bytes this rank mapped for its arenas (a window counts once, on its owner).
  virtual std::int64_t mappedArenaBytes() const = 0;
  /// Bytes of this rank for the exchange between hosts: 0 if all ranks live on one. The plan names them, but they are
  /// in no arena.
  virtual std::int64_t hostLinkBytes() const { return 0; }
  /// The number of hosts that the ranks live on, where the platform knows it.
  virtual int hosts() const { return 1; }
  /// The memory that this rank has added since just before the arenas were mapped: the growth of its proportional set
  /// size. Negative: unknown.
  virtual std::int64_t proportionalSetGrowthBytes() const = 0;
  /// The proportional set size just before the arenas were mapped. Negative: unknown.
  virtual std::int64_t proportionalSetBytesBefore() const { return -1; }
  /// Measures the current state. Takes milliseconds.
  virtual OutsidePlan outsidePlan() const = 0;
  /// "inline" or "threads", as resolved.
  virtual const char *streamModeName() const = 0;
  /// What kernels use of the processor, the same on every rank; null where that is no choice of the platform.
  virtual const char *cpuLevelName() const { return nullptr; }
  /// The program's functions that run here. Requires: openArenas.
  virtual const Functions &functionsOf(const ProgramInfo &program) const { return program.functions; }
  /// Returns nullopt if the platform does not measure times or did not measure any step since the last call.
  virtual std::optional<CommunicationTimes> takeCommunicationTimes() = 0;
  /// Called after the last step. Waits for collectives that the program has started and not waited for. Throws
  /// Failure{timeout}.
  virtual void drainCollectives() {}

  /// `--time_matmuls`: records the matmuls that run while it is on, and replays them alone.
  virtual void recordMatmuls(bool on) { static_cast<void>(on); }
  virtual double replayMatmulsMicroseconds() { return 0; }

  /// The target of Context::profile. Kept here because a collective may be outstanding after the last step.
  std::shared_ptr<Profile> profile;

  /// Ends the run on every rank with this exit code, immediately, in any state. The caller flushes output. Callable
  /// from any thread.
  [[noreturn]] virtual void abort(int exitCode) = 0;
};

/// Joins the process group, or creates one of a single rank when started alone. Throws Failure{device}.
std::unique_ptr<Platform> startPlatform(int &argc, char **&argv);

} // namespace fsdpc::rt
