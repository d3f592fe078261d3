// The cpu target as passes see it.
//
// Facts: values are aligned to 64 bytes and arenas are multiples of pages. Ranks of one host read each other's window,
// so the operand of every collective is in the window and its result need not be. Scratch of oneDNN primitives is
// queried from oneDNN for `threads` compute threads. A program started with more threads gives those primitives fewer
// threads rather than more memory.
#pragma once

#include "ir/target.h"
#include <functional>
#include <memory>

namespace fsdpc {

struct CpuTargetOptions {
  int threads = 1; ///< compute threads per rank that scratch is planned for
  /// From the hardware table, which the driver chooses. Empty: all costs are 0.
  std::function<double(const Node &)> costMicroseconds = {};
  std::function<double(int64_t bytes, double overlappedMicroseconds)> exposedCopyMicroseconds = {};
};

std::unique_ptr<Target> makeCpuTarget(const CpuTargetOptions &options);

} // namespace fsdpc
