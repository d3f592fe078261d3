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

/// What several streams do together, once all of them have come to it (a collective).
struct Meeting {
  std::vector<Stream *> streams; ///< one per member; null: has not called yet
  std::function<void()> run;
};

struct Operation {
  std::function<void()> run = {};
  std::shared_ptr<const bool> awaited = {}; ///< runs once this is true
  std::shared_ptr<Meeting> meeting = {};
};

struct Stream {
  std::deque<Operation> queue;
  unsigned weight = 1; ///< how much likelier than others it is to go on
};

/// Whoever waits for an event waits for the record before the call, whatever is recorded later.
struct Event {
  std::shared_ptr<bool> completed = std::make_shared<bool>(true); ///< of the last record
  std::chrono::steady_clock::time_point time;
};

class Device {
public:
  static Device &instance();

  void add(Stream &stream);
  void remove(Stream &stream);
  /// Puts the operation at the end of the queue and lets the device do some of its work, or none.
  void enqueue(Stream &stream, Operation operation);
  /// As above, where the operation is made under the device's lock.
  void enqueueMeeting(Stream &stream, const std::function<std::shared_ptr<Meeting>()> &join);
  void record(Event &event, Stream &stream);
  void wait(Stream &stream, Event &event);
  /// Runs operations, of any stream, until `done`; sleeps while other ranks have to come first.
  void runUntil(const std::function<bool()> &done);
  /// Does some work, as a device would in the meantime, and tells whether `done`.
  bool poll(const std::function<bool()> &done);

private:
  Device();
  bool mayRun(const Stream &stream) const;
  bool runOne();
  void runSome();
  void push(Stream &stream, Operation operation);

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream *> streams;
  std::mt19937 random;
  const bool isEager; ///< every call runs all it can: for tests that read results at once
  unsigned untilNewWeights = 0;
};

} // namespace fsdpc::emulated
