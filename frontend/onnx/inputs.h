// The inputs of the graph, with every dim known.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

namespace fsdpc {

struct GraphInput {
  std::string name;
  Type type;
};

/// Graph inputs that no initializer gives a value, in file order.
std::vector<const onnx::ValueInfoProto *> dataInputs(const onnx::GraphProto &graph);

/// Dim 0 of every input becomes the micro-batch size: a symbol that stands at dim 0 only, or an unnamed dim. Other
/// symbols take their value from options.dims. Errors: all unbound dims in one message, a fixed dim 0 of another size,
/// an unknown name in options.dims, a type that is no tensor.
llvm::Expected<std::vector<GraphInput>> bindInputs(const OnnxModel &model, const ImportOptions &options);

/// Dims as written: "batch", "64", or "input[1]" for one without name and size.
std::string dimText(const onnx::ValueInfoProto &value, int axis);

} // namespace fsdpc
