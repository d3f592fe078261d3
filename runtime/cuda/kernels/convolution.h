// Convolutions through cuDNN, in f32, by deterministic algorithms only.
#pragma once

#include "runtime/common/address.h"
#include "runtime/common/kernel_shapes.h"

#include <memory>

namespace fsdpc::rt {

/// One of the three passes, each with two operands and a result: (x, w) -> y, (dy, w) -> dx, (x, dy) -> dw.
class Convolution {
public:
  enum class Pass { forward, gradInput, gradWeight };
  Convolution();
  ~Convolution();
  /// Called once, in start(). `workspaceBytes`: the planned workspace of every run.
  void create(const Context &c, Pass pass, const ConvolutionShape &shape, std::int64_t workspaceBytes);
  void operator()(const float *a, const float *b, float *out, Workspace workspace) const {
    run(a, b, nullptr, out, workspace);
  }
  /// forward with a bias [outputChannels]
  void operator()(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const {
    run(a, b, bias, out, workspace);
  }

private:
  void run(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const;
  struct Plan;
  std::unique_ptr<Plan> plan;
};

} // namespace fsdpc::rt
