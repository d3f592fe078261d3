// The part of NCCL that the runtime uses, for ranks that are threads of one process. A collective is one operation at
// the head of a stream of every rank. It runs when all of them have reached it.
#pragma once

#include <cuda_runtime.h>

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_WIN_COLL_SYMMETRIC 1
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_UNIQUE_ID_BYTES 128

namespace fsdpc::emulated {
struct Communicator;
}

using ncclComm_t = fsdpc::emulated::Communicator *;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclWindow;
using ncclWindow_t = ncclWindow *;
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER {1}

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInProgress = 7
};
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
};
enum ncclRedOp_t { ncclSum = 0 };

const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *communicator, ncclConfig_t *config);
ncclResult_t ncclCommCount(ncclComm_t communicator, int *count);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error);
ncclResult_t ncclMemAlloc(void **pointer, std::size_t bytes);
ncclResult_t ncclMemFree(void *pointer);
ncclResult_t ncclCommWindowRegister(ncclComm_t communicator, void *buffer, std::size_t bytes, ncclWindow_t *window,
                                    int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t communicator, ncclWindow_t window);
ncclResult_t ncclAllGather(const void *send, void *receive, std::size_t sendCount, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *send, void *receive, std::size_t receiveCount, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *send, void *receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void *send, void *receive, std::size_t count, ncclDataType_t type,
                          ncclComm_t communicator, cudaStream_t stream);
