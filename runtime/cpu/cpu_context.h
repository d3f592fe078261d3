// Additions of the cpu target to the context of a program.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

class Communicator; // runtime/cpu/communicator.h
class Stream;       // runtime/cpu/stream.h

/// How matmuls and convolutions multiply bf16 operands: as f32 copies, or as they are with these instructions.
enum class Bf16Products : std::uint8_t { none, avx512, amx };

struct CpuContext : TargetContext {
  Communicator *communicator = nullptr;
  Stream *commStream = nullptr; ///< where collectives run: a worker thread, or inline
  Stream *copyStream = nullptr; ///< where copies to and from the host's arena run; null without such an arena
  Bf16Products bf16Products = Bf16Products::none; ///< the same on every rank
  Stream *reduceStream = nullptr; ///< where reductions run if they have their own communicator; else null
};

inline CpuContext &cpuOf(const Context &context) { return *static_cast<CpuContext *>(context.target); }

} // namespace fsdpc::rt
