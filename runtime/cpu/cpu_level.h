// What the kernels of a run may use of the processors. Bits of results depend on it, so ranks agree on what all of them
// have.
#pragma once

#include "runtime/cpu/cpu_context.h"

#include <string_view>

namespace fsdpc::rt {

/// What this process may use: of the processor, at most what the environment variable FSDPC_CPU_LEVEL names, and at
/// most `planned` (ProgramInfo::cpuLevel; "": any), which the plan has scratch for.
CpuLevel ownCpuLevel(std::string_view planned);

/// Lets oneDNN use no more than `common`, and returns what remains: the library's own variable ONEDNN_MAX_CPU_ISA may
/// lower it too. To be called before any other use of oneDNN.
CpuLevel limitLibraryTo(CpuLevel common);

/// The value in the log: "x86-64-v3" ("base" on other processors), "x86-64-v4", "avx512_bf16", "amx_bf16".
const char *nameOf(CpuLevel level);

/// For kernels: matmuls and convolutions multiply bf16 operands as they are.
inline bool multipliesBf16(const Context &c) { return c.target && cpuOf(c).level >= CpuLevel::avx512Bf16; }

/// The same for attention.
inline bool multipliesOnTiles(const Context &c) { return c.target && cpuOf(c).level == CpuLevel::amxBf16; }

} // namespace fsdpc::rt
