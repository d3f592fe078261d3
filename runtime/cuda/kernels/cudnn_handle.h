// This process's cuDNN handles: one per thread that drives a device.
#pragma once

#include <cudnn.h>

namespace fsdpc::rt {

/// Throws Failure{internal} naming `what` unless `status` is success.
void checkDnn(cudnnStatus_t status, const char *what);

/// This thread's handle, which enqueues on the `stream` of the first call, made in start().
cudnnHandle_t cudnnHandleOf(cudaStream_t stream);

} // namespace fsdpc::rt
