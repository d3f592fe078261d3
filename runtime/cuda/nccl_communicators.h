// The NCCL communicators of one rank: one for every pair of group of ranks and channel that the program's collectives
// use.
//
// One communicator runs one collective at a time, so channels that are to overlap have separate communicators. All are
// split from the world's, in the same order on every rank. Groups are the program's mesh axes. One thread makes all
// host calls in the order of the schedule, which is the same on every rank, as NCCL requires.
#pragma once

#include "runtime/common/program.h"

#include <nccl.h>

#include <map>
#include <utility>

namespace fsdpc::rt {

/// Throws Failure{internal} naming `what` unless `result` is ncclSuccess.
void checkNccl(ncclResult_t result, const char *what);
ncclDataType_t ncclTypeOf(DType dtype);

class NcclCommunicators {
public:
  /// Collective over all ranks: joins the world under rank 0's `id`, then splits. Registers the window, if not null,
  /// with each communicator as symmetric memory.
  NcclCommunicators(const ProgramInfo &program, int rank, const ncclUniqueId &id, void *window,
                    std::int64_t windowBytes);
  ~NcclCommunicators();
  NcclCommunicators(const NcclCommunicators &) = delete;
  NcclCommunicators &operator=(const NcclCommunicators &) = delete;

  /// For a collective of the side table.
  ncclComm_t of(const CollectiveInfo &collective) const;
  /// Throws Failure{timeout} if NCCL has detected the loss of a peer or a link.
  void checkErrors() const;
  void abort();

private:
  using Key = std::pair<int, Channel>; ///< mesh axis; -1: all ranks
  void add(const Key &key, const ProgramInfo &program, int rank);
  std::map<Key, ncclComm_t> communicators;
  std::map<Key, ncclWindow_t> windows;
  void *window;
  std::int64_t windowBytes;
};

} // namespace fsdpc::rt
