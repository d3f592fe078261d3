// Scratch of the kernels of the cpu target, including oneDNN's.
#pragma once

#include "codegen/common/matmul_config.h"
#include <string>

namespace fsdpc {

/// Bytes, for `threads` threads of this machine's kind; nullopt when oneDNN refuses the shape.
std::optional<int64_t> scratchBytes(const MatmulConfig &config, int threads);
/// Includes space for tensors in oneDNN's own layouts.
std::optional<int64_t> scratchBytes(const ConvolutionConfig &config, int threads);

/// The same for operands in bf16 where processors multiply those; 0 if oneDNN has no such product here.
int64_t nativeScratchBytes(const MatmulConfig &config, int threads);

/// Whether the kernel of a linear loss takes its operands as they are. It makes f32 copies where the processor needs
/// them.
bool takesBf16(const Node &linearLoss);
/// Dialect::bytesBeforeMatmuls
int64_t cpuLossBytesBeforeMatmuls(const Node &node);

/// Target::workspaceLevel: what oneDNN may use here.
std::string scratchLevel();

/// For one thread. `node` is an attention or attention_grad.
int64_t attentionScratchBytes(const Node &node);
int64_t normGradScratchBytes(const Node &node);
int64_t scatterRowsScratchBytes(const Node &node);
int64_t scatterAddScratchBytes(const Node &node);

} // namespace fsdpc
