// Ranks that are threads of one process on one device, and what they do together: the loopback transport. It stands
// where NCCL does, behind the same functions, so that a program of several ranks runs on a machine with one GPU, and on
// the emulated device.
//
// A collective is enqueued by the member that comes to it last: its stream waits for all the others', does the copies
// and sums for everybody, and then all streams wait for it. Members meet on the host for that; since every rank calls
// the same collectives in the same order, whoever waits is waited for by nobody it needs. Streams are ordered by events
// alone, and no kernel waits for another: one device is enough for any number of ranks.
//
// It checks less than the emulated NCCL (tests/emulated/nccl.cpp): windows are taken as they come. A stream that is
// being captured can take part only alone: CUDA does not let captures of several threads wait for each other.
#pragma once

#include "tests/emulated/nccl_bytes.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fsdpc::loopback {

inline constexpr int mostMembers = 16;

enum class Kind { gather, scatterSum, sum, exchange };

/// What all members of a collective must agree on.
struct Call {
  Kind kind{};
  std::size_t count = 0; ///< elements, as NCCL counts them
  ncclDataType_t type{};
  bool operator==(const Call &) const = default;
};

/// What one member brings to a collective.
struct Part {
  const std::byte *send = nullptr;
  std::byte *receive = nullptr;
};

/// The members of a communicator. Every function is called by all of them.
class Group {
public:
  explicit Group(int size);
  ~Group();
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;

  int size() const { return static_cast<int>(parts.size()); }
  /// Returns when all have called it.
  void join();
  /// The group of those that give the same colour, and this member's rank there; members keep their order. A negative
  /// colour takes part and gets none.
  std::pair<std::shared_ptr<Group>, int> split(int rank, int number, int color);
  /// Enqueues the collective; it has ended on `stream` when all members' results are there and nobody reads operands.
  ncclResult_t perform(const Call &call, int rank, const Part &part, cudaStream_t stream);

private:
  ncclResult_t enqueue(cudaStream_t stream);
  bool meet(std::unique_lock<std::mutex> &lock);

  std::mutex mutex;
  std::condition_variable changed;
  int present = 0;         ///< members that have come to the meeting that is going on
  std::uint64_t round = 0; ///< meetings that are over
  Call call;
  std::vector<Part> parts;
  std::vector<cudaEvent_t> arrived; ///< by member: what its stream had to do before
  cudaEvent_t done = nullptr;
  ncclResult_t result = ncclSuccess;                              ///< of the collective enqueued last
  std::map<int, std::map<int, int>> colors;                       ///< by split and rank
  std::map<std::pair<int, int>, std::shared_ptr<Group>> children; ///< by split and colour
};

} // namespace fsdpc::loopback
