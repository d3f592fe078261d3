#include "ir/ops/window.h"

#include "ir/op.h"

namespace fsdpc {

namespace {

// Products of two such numbers and sums of a few stay far from overflow.
constexpr int64_t extentLimit = int64_t(1) << 31;

bool allWithin(llvm::ArrayRef<int64_t> values, int64_t least) {
  for (int64_t value : values)
    if (value < least || value >= extentLimit)
      return false;
  return true;
}

/// Adds the taps of one more axis to each tap found so far; the flat indices grow row-major.
std::vector<WindowTap> appendAxis(const std::vector<WindowTap> &outer, const Window &window, int64_t outputDim,
                                  size_t axis) {
  std::vector<WindowTap> taps;
  for (const WindowTap &tap : outer)
    for (int64_t o = 0; o < outputDim; ++o)
      for (int64_t k = 0; k < window.kernel[axis]; ++k) {
        int64_t i = o * window.strides[axis] + k * window.dilations[axis] - window.padsBefore[axis];
        if (i >= 0 && i < window.input[axis])
          taps.push_back(
              {tap.output * outputDim + o, tap.kernel * window.kernel[axis] + k, tap.input * window.input[axis] + i});
      }
  return taps;
}

} // namespace

llvm::Expected<Shape> windowOutput(llvm::StringRef op, const Window &window) {
  size_t axes = window.input.size();
  if (axes < 1 || axes > 3 || window.kernel.size() != axes || window.strides.size() != axes ||
      window.dilations.size() != axes || window.padsBefore.size() != axes || window.padsAfter.size() != axes)
    return constraintError(op, "C1",
                           "1 to 3 spatial axes, and kernel, strides, dilations and pads have one entry for each");
  if (!allWithin(window.kernel, 1) || !allWithin(window.strides, 1) || !allWithin(window.dilations, 1) ||
      !allWithin(window.padsBefore, 0) || !allWithin(window.padsAfter, 0) || !allWithin(window.input, 0))
    return constraintError(op, "C2", "kernel, strides and dilations are at least 1, pads at least 0, all below 2^31");
  Shape output;
  for (size_t axis = 0; axis < axes; ++axis) {
    int64_t covered = window.dilations[axis] * (window.kernel[axis] - 1) + 1;
    int64_t padded = window.input[axis] + window.padsBefore[axis] + window.padsAfter[axis];
    if (covered > padded)
      return constraintError(op, "C3",
                             "on spatial axis " + llvm::Twine(axis) + " the window covers " + llvm::Twine(covered) +
                                 " elements but the padded input has " + llvm::Twine(padded));
    output.push_back((padded - covered) / window.strides[axis] + 1);
  }
  return output;
}

bool everyWindowTouchesInput(const Window &window, llvm::ArrayRef<int64_t> output) {
  for (size_t axis = 0; axis < output.size(); ++axis) {
    int64_t dilation = window.dilations[axis];
    int64_t last = (output[axis] - 1) * window.strides[axis] - window.padsBefore[axis];
    if (last >= window.input[axis])
      return false;
    // Windows that begin inside the input cover an element of it. Only those that begin before the input can skip it.
    for (int64_t start = -window.padsBefore[axis]; start < 0 && start <= last; start += window.strides[axis]) {
      int64_t firstInside = (-start + dilation - 1) / dilation;
      if (firstInside >= window.kernel[axis] || start + firstInside * dilation >= window.input[axis])
        return false;
    }
  }
  return true;
}

std::vector<WindowTap> windowTaps(const Window &window, llvm::ArrayRef<int64_t> output) {
  std::vector<WindowTap> taps = {{0, 0, 0}};
  for (size_t axis = 0; axis < output.size(); ++axis)
    taps = appendAxis(taps, window, output[axis], axis);
  // Appending axis by axis interleaves output and kernel coordinates. A stable sort by output keeps the kernel order.
  llvm::stable_sort(taps, [](const WindowTap &a, const WindowTap &b) { return a.output < b.output; });
  return taps;
}

} // namespace fsdpc
