// The queues of the emulated device, which all ranks of a process share.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace fsdpc::emulated {

/// One record of an event. A wait for the event is for the last record before the wait, whatever is recorded later.
struct Record {
  bool isCompleted = false;
  std::chrono::steady_clock::time_point time;
};

/// An operation of several streams that runs once all of them have reached it (a collective).
struct Meeting {
  std::vector<Stream *> streams; ///< one per member; null: has not called yet
  std::function<void()> run;
};

struct Operation {
  std::function<void()> run = {};
  std::shared_ptr<const Record> awaited = {}; ///< runs once this has completed
  std::shared_ptr<Meeting> meeting = {};
  /// Creates the meeting for a stream that is to reach it, under the device's lock.
  std::function<std::shared_ptr<Meeting>(Stream &)> join = {};
  bool isArrival = false; ///< the end of a copy from the host
};

/// The end of an event's record.
inline Operation completing(const std::shared_ptr<Record> &record) {
  return {.run = [record] { *record = {true, std::chrono::steady_clock::now()}; }};
}

class Capture;
struct Graph;
struct ExecutableGraph;

/// Nodes of a capture that the next operation depends on.
struct Frontier {
  std::shared_ptr<Capture> capture; ///< null: none
  std::vector<std::size_t> nodes;
};

struct Stream {
  std::deque<Operation> queue;
  unsigned weight = 1; ///< its relative probability of continuing
  Frontier captured;   ///< while it captures
};

/// May be destroyed before its records have completed.
struct Event {
  std::shared_ptr<Record> last = std::make_shared<Record>(true); ///< initially a completed one
  bool isRecorded = false;
  Frontier captured; ///< if its last record was captured
};

/// The order in which streams continue.
struct Interleaving {
  unsigned seed = 0;
  bool isEager = false; ///< every call runs all it can, for tests that read results immediately
};

class Device {
public:
  static Device &instance();

  /// Takes effect from now on. Initially set by FSDPC_EMULATED_SEED and FSDPC_EMULATED_EAGER. With a given seed and one
  /// calling host thread, the order is always the same.
  void interleave(const Interleaving &interleaving);
  void add(Stream &stream);
  void remove(Stream &stream);
  /// Appends the operation to the queue and lets the device do some of its work, or none; or captures the operation.
  cudaError_t enqueue(Stream &stream, Operation operation);
  cudaError_t record(Event &event, Stream &stream, bool isExternal = false);
  cudaError_t wait(Stream &stream, Event &event);
  cudaError_t beginCapture(Stream &stream);
  cudaError_t endCapture(Stream &stream, Graph *&graph);
  void launch(ExecutableGraph &executable, Stream &stream);
  /// The error of querying whether captured work has ended; the capture is then void.
  cudaError_t queryCaptured(const Event &event);
  cudaError_t queryCaptured(const Stream &stream);
  /// Runs operations, of any stream, until `done`; sleeps while other ranks must act first.
  void runUntil(const std::function<bool()> &done);
  /// Does some work, as a device would in the meantime, and returns whether `done`.
  bool poll(const std::function<bool()> &done);

private:
  Device();
  bool mayRun(const Stream &stream) const;
  void rank(Stream &stream);
  unsigned urgency(const Stream &stream) const;
  bool runOne();
  void runSome();
  void push(Stream &stream, const Operation &operation);
  /// The queue entry for the operation.
  static Operation begunOn(Stream &stream, const Operation &operation);
  void goOn();
  static cudaError_t recordCaptured(Event &event, Stream &stream, bool isExternal);
  static cudaError_t waitCaptured(Stream &stream, Event &event);

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream *> streams;
  std::mt19937 random;
  bool isEager = false;
  bool isRanked = false;        ///< the stream of the largest weight goes first
  bool areArrivalsLate = false; ///< but copies from the host arrive last
  unsigned untilNewWeights = 0;
};

} // namespace fsdpc::emulated
