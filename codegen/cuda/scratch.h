// Scratch of the kernels of the cuda target, including cuBLASLt's and cuDNN's.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// 0 for most nodes. A library gets a fixed amount and chooses an algorithm that needs no more. Attention through cuDNN
/// has its own bound (library_attention.h).
int64_t cudaScratchBytes(const Node &node);
/// Dialect::bytesBeforeMatmuls
int64_t cudaLossBytesBeforeMatmuls(const Node &node);

} // namespace fsdpc
