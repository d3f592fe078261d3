// The NCCL functions that the runtime calls, on the loopback transport.
#include "tests/gpu/loopback/group.h"

#include <atomic>
#include <cstdio>
#include <string>

namespace fsdpc::loopback {
namespace {

/// The target of a communicator's handle.
struct Member {
  std::shared_ptr<Group> group;
  int rank = 0;
  int splits = 0;
};

Member &memberOf(ncclComm_t communicator) { return *reinterpret_cast<Member *>(communicator); }
ncclComm_t handleOf(Member *member) { return reinterpret_cast<ncclComm_t>(member); }

/// The group of all communicators that were created with an id.
std::shared_ptr<Group> worldOf(const ncclUniqueId &id, int size) {
  static std::mutex mutex;
  // Never destroyed: events outlive no device.
  static auto &worlds = *new std::map<std::string, std::shared_ptr<Group>>;
  std::lock_guard lock(mutex);
  std::shared_ptr<Group> &world = worlds[std::string(id.internal, sizeof id.internal)];
  if (!world)
    world = std::make_shared<Group>(size);
  return world;
}

ncclResult_t perform(const Call &call, const void *send, void *receive, ncclComm_t communicator, cudaStream_t stream) {
  Member &member = memberOf(communicator);
  return member.group->perform(call, member.rank,
                               {static_cast<const std::byte *>(send), static_cast<std::byte *>(receive)}, stream);
}

} // namespace
} // namespace fsdpc::loopback

using namespace fsdpc::loopback;

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess: return "no error";
  case ncclUnhandledCudaError: return "loopback transport: a CUDA call failed (is the stream being captured?)";
  case ncclSystemError: return "loopback transport: a rank did not join";
  case ncclInvalidArgument: return "loopback transport: a type without a sum, or too many ranks";
  default: return "loopback transport: error";
  }
}
const char *ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetVersion(int *version) { return *version = 0, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static std::atomic<int> next{0};
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "loopback %d", ++next);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank) {
  if (ranks > maxMembers)
    return ncclInvalidArgument;
  std::shared_ptr<Group> world = worldOf(id, ranks);
  world->join();
  *communicator = handleOf(new Member{world, rank});
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *communicator, ncclConfig_t *) {
  Member &member = memberOf(parent);
  if (key != member.rank) // members would change their order
    return ncclInvalidArgument;
  auto [group, rank] = member.group->split(member.rank, ++member.splits, color);
  *communicator = group ? handleOf(new Member{group, rank}) : nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int *count) {
  return *count = memberOf(communicator).group->size(), ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete &memberOf(communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) { return ncclCommDestroy(communicator); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *error) { return *error = ncclSuccess, ncclSuccess; }

ncclResult_t ncclMemAlloc(void **pointer, std::size_t bytes) {
  return cudaMalloc(pointer, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void *pointer) {
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t, void *buffer, std::size_t, ncclWindow_t *window, int) {
  return *window = static_cast<ncclWindow_t>(buffer), ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }

ncclResult_t ncclAllGather(const void *send, void *receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return perform({Kind::gather, count, type}, send, receive, communicator, stream);
}
ncclResult_t ncclReduceScatter(const void *send, void *receive, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t communicator, cudaStream_t stream) {
  return perform({Kind::scatterSum, count, type}, send, receive, communicator, stream);
}
ncclResult_t ncclAllReduce(const void *send, void *receive, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t stream) {
  return perform({Kind::sum, count, type}, send, receive, communicator, stream);
}
ncclResult_t ncclAlltoAll(const void *send, void *receive, std::size_t count, ncclDataType_t type,
                          ncclComm_t communicator, cudaStream_t stream) {
  return perform({Kind::exchange, count, type}, send, receive, communicator, stream);
}
