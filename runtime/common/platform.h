// What the main program needs from a target: processes, arenas, host-side collectives outside the step, counters.
//
// Implemented once per target (runtime/cpu/platform.cpp). `main` starts the platform, checks the world size, and only
// then opens the arenas. Everything here except `abort`, `rank`, `worldSize` and the counters is collective: every rank
// calls it, in the same order. None of it is used inside a step, so none of it has to be fast; the collectives of the
// step are the program's own.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/heartbeat.h"
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

/// What is compared and recorded of the collectives, beside their moments.
enum class DebugCollectives : std::uint8_t {
  off,
  sequence, ///< every rank comes to the same collective: compared before data moves
  detail,   ///< also hashes of operands and results; those that ranks have in common are compared at the end
};

/// Whether the device replays the training step as one graph.
enum class CudaGraph : std::uint8_t {
  automatic, ///< where it can be captured
  on,        ///< else the run ends with Failure{internal}
  off,
};

/// A link slowed down on purpose, to see what of a schedule hides: the body of every collective takes
/// microseconds + bytes / bytesPerMicrosecond longer (0: no such term), asleep. Bytes are what a rank reads of all
/// members of the group: the full buffer, `members` times for all_reduce.
struct SlowLink {
  double microseconds = 0;
  double bytesPerMicrosecond = 0;
};

struct PlatformOptions {
  int threads = 0; ///< compute threads per rank; 0: cores / ranks of this host, at least 1
  StreamMode streams = StreamMode::automatic;
  double timeoutSeconds = 100; ///< how long a rank waits for another one in a collective before it ends the run
  Pulse *pulse = nullptr;      ///< where collectives leave their signs of life and their traces
  DebugCollectives debug = DebugCollectives::sequence;
  SlowLink slowLink;
  CudaGraph cudaGraph = CudaGraph::automatic;
};

/// Accumulated since the last `takeCommunicationTimes`, on this rank.
struct CommunicationTimes {
  double communicationMicroseconds = 0; ///< collectives were running
  double exposedMicroseconds = 0;       ///< compute stood in `wait` although every rank had come
  /// Compute stood in `wait` because some rank had not come; nothing: it is part of the exposed time.
  std::optional<double> skewMicroseconds = 0;
};

/// What a rank has in memory beside its arenas: libraries, feeding, logging, what keeps gradients to be saved, MPI or
/// NCCL. Measured, for no plan knows it. Negative: the system does not tell.
struct OutsidePlan {
  std::int64_t bytes =
      -1; ///< of the memory that the plan is about: the device's, or the host's where that is the device
  std::optional<std::int64_t> hostBytes; ///< of the host's where the device has its own
};

class Platform {
public:
  virtual ~Platform() = default; ///< unmaps, joins workers, finalizes the process group

  virtual int rank() const = 0;
  virtual int worldSize() const = 0;

  /// Maps and checks the arenas (contents unspecified: `main` initializes the state), starts communicator, stream and
  /// library threads. Called once, with worldSize() == program.worldSize. The context lives as long as the platform;
  /// `threads` in it is the resolved number. Throws Failure{memory or device} with everyRank set: the ranks agree
  /// before throwing.
  virtual Context &openArenas(const ProgramInfo &program, const PlatformOptions &options) = 0;

  /// Does what `step` says: the functions of one training step, and the fetching of its result. A platform with graphs
  /// may call it while it records, and later replay what was recorded without calling it: `step` enqueues the same for
  /// every step. What `step` hands to `feed`, `feeds` hands to it in the same order, and does nothing else.
  /// `isMeasured`: communication times and, if there is a profile, moments of sections are wanted.
  virtual void runStep(const std::function<void()> &step, const std::function<void()> &feeds, bool isMeasured) {
    static_cast<void>(feeds);
    static_cast<void>(isMeasured);
    step();
  }
  /// For what is stored between the functions of a step: `fill` stores one micro-batch (writeArena). The next function
  /// sees it, whether the step is called or replayed.
  virtual void feed(const std::function<void()> &fill) { fill(); }
  /// After what a function computed has been read: ends the run if one of the indices that it computed was outside its
  /// axis, unless that was noticed at once. Throws Failure{corrupt}.
  virtual void checkIndices() {}
  /// After the step's result has been read: if the step was measured, waits for its end and keeps its times.
  virtual void finishStep() {}
  /// What the platform decided since the last call, as one line for the log; nothing: nothing.
  virtual std::optional<std::string> takeNotice() { return std::nullopt; }

  virtual void barrier() = 0;
  /// Collective, once, behind the program's `start`: what ranks decide together about what was created there.
  virtual void finishStart(const std::string &outDirectory) { static_cast<void>(outDirectory); }
  virtual void broadcast(void *data, std::int64_t bytes) = 0; ///< from rank 0
  virtual std::int64_t maxOverRanks(std::int64_t value) = 0;
  virtual std::int64_t sumOverRanks(std::int64_t value) = 0;
  /// Rank 0 receives worldSize x `bytes` in rank order in `all` (null elsewhere).
  virtual void gatherToRoot(const void *mine, std::int64_t bytes, void *all) = 0;

  /// Brings this rank's signs of life and its trace up to date with what its device has done, where the host's calls do
  /// not tell: called by the watchdog when no rank has got on for a while. From any thread.
  virtual void lookAtDevice() {}

  /// The page of signs of life that this rank shares with others; null: it sees no other rank's.
  virtual HeartbeatPage *heartbeats() { return nullptr; }

  /// Bytes this rank mapped for its arenas (a window counts once, on its owner).
  virtual std::int64_t mappedArenaBytes() const = 0;
  /// This rank's part of the memory that opening the arenas and all that came after has added: its proportional set
  /// size now, minus just before the arenas were mapped. Negative: the system does not tell.
  virtual std::int64_t proportionalSetGrowthBytes() const = 0;
  /// The second of the two. Negative: the system does not tell.
  virtual std::int64_t proportionalSetBytesBefore() const { return -1; }
  /// Now. Takes milliseconds.
  virtual OutsidePlan outsidePlan() const = 0;
  /// "inline" or "threads", as resolved.
  virtual const char *streamModeName() const = 0;
  /// Nothing where the platform does not measure them, or has not measured the steps since.
  virtual std::optional<CommunicationTimes> takeCommunicationTimes() = 0;
  /// Waits for what the program has started and not waited for, after the last step. Throws Failure{timeout}.
  virtual void drainCollectives() {}

  /// `--time_matmuls`: the matrix products between begin and end are noted, and replayed alone.
  virtual void noteProducts(bool on) { static_cast<void>(on); }
  virtual double replayProductsMicroseconds() { return 0; }

  /// What Context::profile points to. Kept here because a collective may be outstanding when the steps are over.
  std::shared_ptr<Profile> profile;

  /// Ends the run on every rank with this exit code, at once, whatever state the others are in. Output is flushed by
  /// the caller. From any thread.
  [[noreturn]] virtual void abort(int exitCode) = 0;
};

/// Joins the process group (or makes one of one rank when started alone). Throws Failure{device}.
std::unique_ptr<Platform> startPlatform(int &argc, char **&argv);

} // namespace fsdpc::rt
