// The shapes of library primitives, from nodes: what start() creates, and how much scratch oneDNN wants for it.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// As MatmulShape of runtime/cpu/kernels/matmul.h.
struct MatmulConfig {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transposeA = false, transposeB = false;
  bool oneA = false, oneB = false;
  static MatmulConfig of(const Node &node);
  /// MatmulShape's designated initializer.
  std::string text() const;
  /// matmulNt2048x1152x384
  std::string name() const;
};

/// As ConvolutionShape and Convolution::Pass of runtime/cpu/kernels/convolution.h.
struct ConvolutionConfig {
  enum class Pass { forward, gradInput, gradWeight };
  Pass pass = Pass::forward;
  int64_t batch = 1, inputChannels = 1, outputChannels = 1, groups = 1;
  Shape input, kernel, output, strides, dilations, padsBefore, padsAfter; ///< per spatial axis
  bool bias = false;
  static ConvolutionConfig of(const Node &node);
  std::string text() const;
  std::string passText() const;
  std::string name() const;
};

/// Bytes, for `threads` threads of this machine's kind; nullopt when oneDNN refuses the shape.
std::optional<int64_t> scratchBytes(const MatmulConfig &config, int threads);
/// Includes room for tensors in oneDNN's own layouts.
std::optional<int64_t> scratchBytes(const ConvolutionConfig &config, int threads);

/// As runtime/cpu/kernels/attention.h counts them, for one thread. `node` is an attention or attention_grad.
int64_t attentionScratchBytes(const Node &node);
int64_t normGradScratchBytes(const Node &node);

} // namespace fsdpc
