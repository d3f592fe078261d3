// The loopback transport: collectives between ranks that are threads of one process on one device. It replaces NCCL,
// with the same functions, so that a program of several ranks runs on a machine with one GPU, and on the emulated
// device.
//
// The last member to reach a collective enqueues it. Its stream waits for all the others', does the copies and sums for
// all members, and then all streams wait for it. Members meet on the host for that. Every rank calls the same
// collectives in the same order, so these waits cannot deadlock. Streams are ordered by events alone, and no kernel
// waits for another: one device suffices for any number of ranks.
//
// It checks less than the emulated NCCL (tests/emulated/nccl.cpp): windows are not checked. A stream that is being
// captured can take part only alone: CUDA does not let captures of several threads wait for each other.
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

inline constexpr int maxMembers = 16;

enum class Kind { gather, scatterSum, sum, exchange };

/// What all members of a collective must agree on.
struct Call {
  Kind kind{};
  std::size_t count = 0; ///< elements, as NCCL counts them
  ncclDataType_t type{};
  bool operator==(const Call &) const = default;
};

/// One member's contribution to a collective.
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
  /// The group of the members with the same colour, and this member's rank there; members keep their order. A member
  /// with a negative colour takes part and gets no group.
  std::pair<std::shared_ptr<Group>, int> split(int rank, int number, int color);
  /// Enqueues the collective. It has ended on `stream` when all members' results are ready and no member reads
  /// operands.
  ncclResult_t perform(const Call &call, int rank, const Part &part, cudaStream_t stream);

private:
  ncclResult_t enqueue(cudaStream_t stream);
  bool meet(std::unique_lock<std::mutex> &lock);

  std::mutex mutex;
  std::condition_variable changed;
  int present = 0;         ///< members that have arrived at the current meeting
  std::uint64_t round = 0; ///< completed meetings
  Call call;
  std::vector<Part> parts;
  std::vector<cudaEvent_t> arrived; ///< by member: end of its stream's earlier work
  cudaEvent_t done = nullptr;
  ncclResult_t result = ncclSuccess;                              ///< of the collective enqueued last
  std::map<int, std::map<int, int>> colors;                       ///< by split and rank
  std::map<std::pair<int, int>, std::shared_ptr<Group>> children; ///< by split and colour
};

} // namespace fsdpc::loopback
