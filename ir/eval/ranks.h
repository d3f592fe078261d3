// Where the ranks of one evaluation meet: every collective is an exchange that all of them must enter with the same
// name.
#pragma once

#include "ir/eval/evaluate.h"
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fsdpc {

/// Thread-safe. The first fault of any rank ends the evaluation: whoever waits is woken, later exchanges return at
/// once.
class Rendezvous {
public:
  explicit Rendezvous(int64_t ranks) : arrivals(ranks) {}

  /// Blocks until all ranks have entered and returns their tensors in rank order. A fault if the names or types differ
  /// or if a rank has left; the result is then `mine` for every rank, for the caller to stop at its next look at
  /// `failed`.
  std::vector<HostTensor> exchange(int64_t rank, std::string name, const HostTensor &mine);
  /// This rank takes part in nothing any more.
  void leave(int64_t rank);
  /// Records a fault; only the first one counts.
  void fail(std::string message);

  int64_t rankCount() const { return static_cast<int64_t>(arrivals.size()); }
  bool failed() const;
  /// After all ranks have left: success or the first fault.
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
  int64_t present = 0; ///< ranks that wait in the current exchange
  int64_t gone = 0;    ///< ranks that have left
  uint64_t round = 0;
  std::shared_ptr<const std::vector<HostTensor>> delivered; ///< of the last round
  bool hasFailed = false;
  std::string fault;
};

} // namespace fsdpc
