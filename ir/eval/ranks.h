// The rendezvous of the ranks of one evaluation. Every collective is an exchange that all ranks must enter with the
// same name.
#pragma once

#include "ir/eval/evaluate.h"
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fsdpc {

/// Thread-safe. The first error of any rank ends the evaluation: waiting ranks wake up, later exchanges return
/// immediately.
class Rendezvous {
public:
  explicit Rendezvous(int64_t ranks) : arrivals(ranks) {}

  /// Blocks until all ranks have entered and returns their tensors in rank order. It is an error if names or types
  /// differ or if a rank has left. Then every rank receives copies of `mine`, and the caller stops when it next checks
  /// `failed`.
  std::vector<HostTensor> exchange(int64_t rank, std::string name, const HostTensor &mine);
  /// This rank enters no further exchange.
  void leave(int64_t rank);
  /// Records an error. Only the first one counts.
  void fail(std::string message);

  int64_t rankCount() const { return static_cast<int64_t>(arrivals.size()); }
  bool failed() const;
  /// Called after all ranks have left. Returns success or the first error.
  llvm::Error takeError();

private:
  struct Arrival {
    bool here = false;
    bool left = false;
    std::string name;
    HostTensor tensor;
  };
  void failLocked(std::string message);
  void completeLocked();
  std::string describeLocked(int64_t rank) const;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Arrival> arrivals;
  int64_t present = 0; ///< ranks waiting in the current exchange
  int64_t gone = 0;    ///< ranks that have left
  uint64_t round = 0;
  std::shared_ptr<const std::vector<HostTensor>> delivered; ///< of the last round
  bool hasFailed = false;
  std::string fault;
};

} // namespace fsdpc
