// The cpu target as passes see it.
//
// Facts: values start on 64 bytes and arenas are whole pages. Ranks of one host read each other's window, so the
// operand of every collective lies there and its result need not. Scratch of oneDNN primitives is asked of oneDNN for
// `threads` compute threads; a program started with more threads gives those primitives fewer rather than more memory.
#pragma once

#include "ir/target.h"
#include <functional>
#include <memory>

namespace fsdpc {

struct CpuTargetOptions {
  bool plainMpi = false; ///< sums need staging: workspace of the start node, in use until the wait
  int threads = 1;       ///< compute threads per rank that scratch is planned for
  /// From the hardware table, which is the driver's to choose. Empty: everything is free.
  std::function<double(const Node &)> costMicroseconds = {};
  std::function<double(int64_t bytes, double besideMicroseconds)> exposedCopyMicroseconds = {};
};

std::unique_ptr<Target> makeCpuTarget(const CpuTargetOptions &options);

} // namespace fsdpc
