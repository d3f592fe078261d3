// The sliding window of convolution and pooling over the spatial axes of x [N, C, spatial...].
#pragma once

#include "ir/type.h"
#include "llvm/Support/Error.h"
#include <vector>

namespace fsdpc {

/// Every field has one entry per spatial axis. The fields reference shapes and attributes that outlive the window.
struct Window {
  llvm::ArrayRef<int64_t> input; ///< spatial dims of x
  llvm::ArrayRef<int64_t> kernel, strides, dilations, padsBefore, padsAfter;
};

/// Spatial dims of the result: floor((input + pads - (dilation * (kernel - 1) + 1)) / stride) + 1.
/// (C1) 1 to 3 spatial axes, every attribute has one entry per axis. (C2) kernel, strides and dilations are at least 1,
/// pads at least 0, all below 2^31. (C3) the window fits into the padded input.
llvm::Expected<Shape> windowOutput(llvm::StringRef op, const Window &window);

/// True if every position of the window covers an element that is not padding. `output` is from windowOutput.
bool everyWindowTouchesInput(const Window &window, llvm::ArrayRef<int64_t> output);

/// Kernel element `kernel` of output element `output` reads input element `input`: flat indices within the spatial
/// planes.
struct WindowTap {
  int64_t output, kernel, input;
};

/// All taps outside the padding, by output, then by kernel element, both in row-major order.
std::vector<WindowTap> windowTaps(const Window &window, llvm::ArrayRef<int64_t> output);

} // namespace fsdpc
