#include "runtime/cuda/kernels/cudnn_handle.h"

#include "runtime/common/failure.h"

#include <string>

namespace fsdpc::rt {

void checkDnn(cudnnStatus_t status, const char *what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Failure(ExitCode::internal, std::string(what) + ": " + cudnnGetErrorString(status));
}

cudnnHandle_t cudnnHandleOf(cudaStream_t stream) {
  static thread_local cudnnHandle_t handle = [&] {
    cudnnHandle_t made = nullptr;
    checkDnn(cudnnCreate(&made), "cudnnCreate");
    checkDnn(cudnnSetStream(made, stream), "cudnnSetStream");
    return made;
  }();
  return handle;
}

} // namespace fsdpc::rt
