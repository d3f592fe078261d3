// The cuda target as passes see it.
//
// Facts: values start on 256 bytes, which is what cuBLASLt asks for its widest loads. Arenas are multiples of 2 MiB,
// the granularity in which the driver maps memory, so what is planned is what is mapped. Both ends of every collective
// lie in the window, which is registered with NCCL as symmetric memory. A start runs on a stream of its own.
#pragma once

#include "ir/target.h"
#include <functional>
#include <memory>

namespace fsdpc {

struct CudaTargetOptions {
  bool treeSums = false; ///< reductions exchange into staging and sum in one order, whatever NCCL's is
  /// From the hardware table, which is the driver's to choose. Empty: everything is free.
  std::function<double(const Node &)> costMicroseconds = {};
  std::function<double(int64_t bytes, double besideMicroseconds)> exposedCopyMicroseconds = {};
};

std::unique_ptr<Target> makeCudaTarget(const CudaTargetOptions &options);

} // namespace fsdpc
