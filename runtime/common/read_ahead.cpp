#include "runtime/common/read_ahead.h"

#include "runtime/common/step_guard.h"
#include "runtime/common/thread.h"

namespace fsdpc::rt {

ReadAhead::ReadAhead(const BatchFeeder &feeder, std::size_t rows)
    : feeder(feeder), requests(maxRequests), current(rows) {
  for (std::vector<std::int64_t> &request : requests)
    request.reserve(rows);
  thread = startThread([this] { work(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::scoped_lock lock(mutex);
    ends = true;
  }
  changed.notify_one();
  thread.join();
}

void ReadAhead::request(std::span<const std::int64_t> rows) {
  {
    const std::scoped_lock lock(mutex);
    if (count == maxRequests)
      return;
    requests[(first + count) % maxRequests].assign(rows.begin(), rows.end());
    ++count;
  }
  changed.notify_one();
}

void ReadAhead::work() {
  leaveOutThisThread();
  for (std::unique_lock lock(mutex); !ends;) {
    if (count == 0) {
      changed.wait(lock);
      continue;
    }
    std::swap(current, requests[first]);
    first = (first + 1) % maxRequests;
    --count;
    lock.unlock();
    try {
      feeder.readAhead(current);
    } catch (const Failure &) {
      // The step that needs the samples reads them again and reports it.
    }
    lock.lock();
  }
}

} // namespace fsdpc::rt
