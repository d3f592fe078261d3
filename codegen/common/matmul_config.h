// The shapes of matmuls and convolutions, from their nodes. start() creates the primitives with these.
#pragma once

#include "ir/node.h"

namespace fsdpc {

/// Mirrors MatmulShape of runtime/common/kernel_shapes.h.
struct MatmulConfig {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transposeA = false, transposeB = false;
  bool oneA = false, oneB = false;
  bool bias = false;
  DType elements = DType::f32, result = DType::f32; ///< of both operands and of the result
  static MatmulConfig of(const Node &node);
  /// MatmulShape's designated initializer.
  std::string text() const;
  /// matmulNt2048x1152x384
  std::string name() const;
};

/// Mirrors ConvolutionShape of runtime/common/kernel_shapes.h and Convolution::Pass.
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

} // namespace fsdpc
