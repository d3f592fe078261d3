// The cuda target as passes see it.
//
// Facts: values are aligned to 256 bytes, as cuBLASLt requires for its widest loads. Arenas are multiples of 2 MiB, the
// granularity in which the driver maps memory, so exactly the planned size is mapped. Operand and result of every
// collective are in the window, which is registered with NCCL as symmetric memory. Starts run on separate streams.
#pragma once

#include "ir/target.h"
#include <functional>
#include <memory>

namespace fsdpc {

struct CudaTargetOptions {
  bool treeSums = false; ///< reductions exchange into staging and sum in one order, whatever NCCL's is
  /// From the hardware table, which the driver chooses. Empty: all costs are 0.
  std::function<double(const Node &)> costMicroseconds = {};
  std::function<double(int64_t bytes, double overlappedMicroseconds)> exposedCopyMicroseconds = {};
};

std::unique_ptr<Target> makeCudaTarget(const CudaTargetOptions &options);

} // namespace fsdpc
