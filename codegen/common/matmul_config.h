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
  bool accumulate = false;                          ///< adds to the result's memory
  static MatmulConfig of(const Node &node);
  /// MatmulShape's designated initializer.
  std::string text() const;
  /// matmulNt2048x1152x384
  std::string name() const;
  /// Writes a row or a column in one form only.
  void normalize();
};

/// The matmuls of a linear_cross_entropy or its derivative for one chunk of positions. Mirrors ChunkMatmuls of
/// runtime/common/chunked_loss.h.
struct ChunkConfig {
  MatmulConfig logits;
  std::optional<MatmulConfig> dhidden, dweight, dweightAdded; ///< none: not computed
  /// For `rows` positions. Types are those of operands that the dialect gives to kernels.
  static ChunkConfig of(const Node &node, int64_t rows, bool takesHalves);
  /// The chunks of the node: those of full size and, if there is one, the last, smaller one.
  static llvm::SmallVector<ChunkConfig, 2> chunksOf(const Node &node, bool takesHalves);
  llvm::SmallVector<MatmulConfig, 4> all() const;
};

/// The sizes of a linear_cross_entropy or its derivative.
struct LinearLossSizes {
  int64_t rows, width, classes, chunk; ///< chunk: at most all rows, at least 1
  unsigned hidden;                     ///< the position of operand `hidden`; weight, labels and perhaps bias follow
  bool hasBias;
  explicit LinearLossSizes(const Node &node);
  /// Returns whether the derivative includes that of a bias.
  static bool sumsColumns(const Node &node);
  /// ChunkedLossLayout::matmuls for logits of that size.
  static int64_t bytesOfChunk(const Node &node, int64_t elementBytes);
};

/// Mirrors ConvolutionShape of runtime/common/kernel_shapes.h and Convolution::Pass.
struct ConvolutionConfig {
  enum class Pass { forward, gradInput, gradWeight };
  Pass pass = Pass::forward;
  int64_t batch = 1, inputChannels = 1, outputChannels = 1, groups = 1;
  Shape input, kernel, output, strides, dilations, padsBefore, padsAfter; ///< per spatial axis
  bool bias = false;
  DType elements = DType::f32, result = DType::f32; ///< of both operands and of the result
  static ConvolutionConfig of(const Node &node);
  std::string text() const;
  std::string passText() const;
  std::string name() const;
};

} // namespace fsdpc
