// The attributes of a window that convolutions and pools slide over the spatial axes of x [N, C, spatial...].
#pragma once

#include "frontend/onnx/translate/node_translation.h"

namespace fsdpc {

/// One entry per spatial axis in every field. Kernel, strides and dilations are at least 1; they, the pads and the dims
/// of x are below windowLimit, so that products of two of them and sums of a few do not overflow.
struct WindowAttributes {
  Shape kernel, strides, dilations, padsBefore, padsAfter;
  /// The number of elements from the first that a window covers on an axis to the last.
  int64_t extent(size_t axis) const { return dilations[axis] * (kernel[axis] - 1) + 1; }
};

inline constexpr int64_t windowLimit = int64_t(1) << 31;

/// Pads as listed, or as auto_pad computes them from the dims of input 0. Rejects values outside the limits above.
WindowAttributes windowOf(NodeTranslation &t, llvm::ArrayRef<int64_t> kernel);

} // namespace fsdpc
