// How much scratch the kernels of the cuda target want, cuBLASLt and cuDNN among them.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// 0 for most nodes. A library gets a fixed amount and chooses an algorithm that needs no more; attention through cuDNN
/// has a bound of its own (library_attention.h).
int64_t cudaScratchBytes(const Node &node);

} // namespace fsdpc
