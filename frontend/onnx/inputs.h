// The inputs of the graph, with every dim known.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

struct GraphInput {
  std::string name;
  Type type;
};

/// Graph inputs without an initializer, in file order.
std::vector<const onnx::ValueInfoProto *> dataInputs(const onnx::GraphProto &graph);

/// Binds dim 0 of every input to the micro-batch size if it is unnamed or a symbol that occurs at dim 0 only. Other
/// symbols take their value from options.dims. Errors: unbound dims (all in one message), a fixed dim 0 of another
/// size, an unknown name in options.dims, a type that is not a tensor.
llvm::Expected<std::vector<GraphInput>> bindInputs(const OnnxModel &model, const ImportOptions &options);

/// Dims as written: "batch", "64", or "input[1]" for a dim without name and size.
std::string dimText(const onnx::ValueInfoProto &value, int axis);

} // namespace fsdpc
