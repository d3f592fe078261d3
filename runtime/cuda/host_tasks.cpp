#include "runtime/cuda/host_tasks.h"

namespace fsdpc::rt {

void enqueue(const Context &context, HostTask &task) {
  const auto call = [](void *stored) { static_cast<HostTask *>(stored)->run(); };
  checkCuda(cudaLaunchHostFunc(deviceOf(context).compute, call, &task), "cudaLaunchHostFunc");
}

} // namespace fsdpc::rt
