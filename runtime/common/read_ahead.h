// Reads the samples of coming steps into the page cache of the system while a step computes.
#pragma once

#include "runtime/common/batch_feeder.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace fsdpc::rt {

/// One thread, which only gives hints: what a step reads does not depend on it.
class ReadAhead {
public:
  /// `feeder` must outlive this. `rows`: the most of one request. Throws Failure{memory} if the thread cannot start.
  ReadAhead(const BatchFeeder &feeder, std::size_t rows);
  ~ReadAhead();
  ReadAhead(const ReadAhead &) = delete;
  ReadAhead &operator=(const ReadAhead &) = delete;

  /// The samples of a coming micro-step, -1 for none. Allocates nothing and waits for no disk. Dropped if the thread is
  /// `maxRequests` behind: the step then reads them itself.
  void request(std::span<const std::int64_t> rows);

private:
  static constexpr std::size_t maxRequests = 16;

  void work();

  const BatchFeeder &feeder;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::int64_t>> requests; ///< a ring
  std::vector<std::int64_t> current;
  std::size_t first = 0, count = 0;
  bool ends = false;
  std::thread thread;
};

} // namespace fsdpc::rt
