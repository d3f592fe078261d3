#include "runtime/cuda/nccl_communicators.h"

#include "runtime/common/failure.h"

#include <set>
#include <string>

namespace fsdpc::rt {

void checkNccl(ncclResult_t result, const char *what) {
  if (result == ncclSuccess)
    return;
  const char *details = ncclGetLastError(nullptr);
  throw Failure(ExitCode::internal, std::string(what) + ": " + ncclGetErrorString(result) +
                                        (details && *details ? ": " : "") + (details ? details : ""));
}

ncclDataType_t ncclTypeOf(DType dtype) {
  switch (dtype) {
  case DType::f64: return ncclFloat64;
  case DType::f32: return ncclFloat32;
  case DType::bf16: return ncclBfloat16;
  case DType::f16: return ncclFloat16;
  case DType::i64: return ncclInt64;
  case DType::i32: return ncclInt32;
  default: return ncclUint8;
  }
}

NcclCommunicators::NcclCommunicators(const ProgramInfo &program, int rank, const ncclUniqueId &id, void *window,
                                     std::int64_t windowBytes)
    : window(window), windowBytes(windowBytes) {
  const Key world{-1, Channel::comm};
  checkNccl(ncclCommInitRank(&communicators[world], program.worldSize, id, rank), "ncclCommInitRank");
  std::set<Key> wanted;
  for (const CollectiveInfo &collective : programCollectives())
    wanted.insert({collective.axis, collective.channel});
  for (const Key &key : wanted)
    if (!communicators.contains(key))
      add(key, program, rank);
  if (windowBytes == 0)
    return;
  for (const auto &[key, communicator] : communicators)
    checkNccl(ncclCommWindowRegister(communicator, window, static_cast<std::size_t>(windowBytes), &windows[key],
                                     NCCL_WIN_COLL_SYMMETRIC),
              "ncclCommWindowRegister");
}

/// The ranks of a group pass the same colour: the lowest of them.
void NcclCommunicators::add(const Key &key, const ProgramInfo &program, int rank) {
  int color = 0;
  if (key.first >= 0)
    color = program.axes[static_cast<std::size_t>(key.first)].rankOf(rank, 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  checkNccl(ncclCommSplit(communicators.at({-1, Channel::comm}), color, rank, &communicators[key], &config),
            "ncclCommSplit");
}

NcclCommunicators::~NcclCommunicators() {
  for (const auto &[key, handle] : windows)
    ncclCommWindowDeregister(communicators[key], handle);
  for (const auto &[key, communicator] : communicators)
    if (communicator)
      ncclCommDestroy(communicator);
}

ncclComm_t NcclCommunicators::of(const CollectiveInfo &collective) const {
  return communicators.at({collective.axis, collective.channel});
}

void NcclCommunicators::checkErrors() const {
  for (const auto &[key, communicator] : communicators) {
    ncclResult_t state = ncclSuccess;
    checkNccl(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");
    if (state != ncclSuccess && state != ncclInProgress)
      throw Failure(ExitCode::timeout, std::string("NCCL has lost a rank or a link: ") + ncclGetErrorString(state));
  }
}

void NcclCommunicators::abort() {
  for (auto &[key, communicator] : communicators)
    if (communicator)
      ncclCommAbort(std::exchange(communicator, nullptr));
}

} // namespace fsdpc::rt
