// Whether matmuls and convolutions multiply bf16 operands as they are, with sums in f32. A property of the processors:
// ranks agree on what all of them have, since bits of results depend on it.
#pragma once

#include "runtime/cpu/cpu_context.h"

namespace fsdpc::rt {

/// What this process may use: of the processor, at most what the environment variable FSDPC_BF16_PRODUCTS names (f32,
/// avx512_bf16 or amx_bf16).
Bf16Products ownBf16Products();

/// Lets oneDNN use no more than `common`, and returns what it does use. To be called before any other use of oneDNN.
/// The library's own variable ONEDNN_MAX_CPU_ISA may lower it too.
Bf16Products limitLibraryTo(Bf16Products common);

/// The value in the log: "f32", "avx512_bf16", "amx_bf16".
const char *nameOf(Bf16Products products);

/// For kernels.
inline bool multipliesBf16(const Context &c) { return c.target && cpuOf(c).bf16Products != Bf16Products::none; }

} // namespace fsdpc::rt
