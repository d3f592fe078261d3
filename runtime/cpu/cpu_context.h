// Additions of the cpu target to the context of a program.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

class Communicator; // runtime/cpu/communicator.h
class Stream;       // runtime/cpu/stream.h

struct CpuContext : TargetContext {
  Communicator *communicator = nullptr;
  Stream *commStream = nullptr;   ///< where collectives run: a worker thread, or inline
  Stream *copyStream = nullptr;   ///< where copies to and from the host's arena run; null without such an arena
  Stream *reduceStream = nullptr; ///< where reductions run if they have their own communicator; else null
};

inline CpuContext &cpuOf(const Context &context) { return *static_cast<CpuContext *>(context.target); }

} // namespace fsdpc::rt
