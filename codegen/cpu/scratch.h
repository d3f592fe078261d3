// Scratch of the kernels of the cpu target, including oneDNN's.
#pragma once

#include "codegen/common/matmul_config.h"
#include <string>

namespace fsdpc {

/// Bytes, for `threads` threads of this machine's kind; nullopt when oneDNN refuses the shape.
std::optional<int64_t> scratchBytes(const MatmulConfig &config, int threads);
/// Includes space for tensors in oneDNN's own layouts.
std::optional<int64_t> scratchBytes(const ConvolutionConfig &config, int threads);

/// Target::workspaceLevel: what oneDNN may use here.
std::string scratchLevel();

/// For one thread. `node` is an attention or attention_grad.
int64_t attentionScratchBytes(const Node &node);
int64_t normGradScratchBytes(const Node &node);
int64_t scatterRowsScratchBytes(const Node &node);
int64_t scatterAddScratchBytes(const Node &node);

} // namespace fsdpc
