// Additions of the cpu target to the context of a program.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

class Communicator; // runtime/cpu/communicator.h
class Stream;       // runtime/cpu/stream.h

/// What kernels use of the processor: vectors of 256 bits (x86-64-v3; on other processors all that the compiler uses),
/// of 512 bits, and products of bf16 operands with sums in f32, by AVX-512 or by AMX.
enum class CpuLevel : std::uint8_t { base, v4, avx512Bf16, amxBf16 };

struct CpuContext : TargetContext {
  Communicator *communicator = nullptr;
  Stream *commStream = nullptr;    ///< where collectives run: a worker thread, or inline
  Stream *copyStream = nullptr;    ///< where copies to and from the host's arena run; null without such an arena
  CpuLevel level = CpuLevel::base; ///< the same on every rank
  Stream *reduceStream = nullptr;  ///< where reductions run if they have their own communicator; else null
};

inline CpuContext &cpuOf(const Context &context) { return *static_cast<CpuContext *>(context.target); }

} // namespace fsdpc::rt
