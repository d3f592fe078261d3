// The nodes of unrolled control flow in order of creation, with the known values among their results.
#pragma once

#include "frontend/onnx/known_values.h"
#include "llvm/ADT/StringSet.h"
#include <string>
#include <vector>

namespace fsdpc {

using Names = std::vector<std::string>;

/// Thrown where a node cannot be unrolled; unrollControlFlow catches it.
struct Refusal {
  std::string why;
};
Refusal tooManyNodes();

/// The graph without control flow, while it is built.
class FlatGraph {
public:
  FlatGraph(OnnxModel &model, llvm::ArrayRef<GraphInput> inputs);

  /// `wanted`, or `wanted` with a suffix. Never returns the same name twice.
  std::string unusedName(const std::string &wanted);
  /// The node has the final names of its inputs and outputs.
  void add(onnx::NodeProto node);
  /// A copy of a body's initializer in the model's graph; returns its name.
  std::string addInitializer(const onnx::TensorProto &tensor);
  /// A node of one output, whose name is returned.
  std::string addNode(llvm::StringRef op, const Names &inputs, const std::string &wanted,
                      std::optional<int64_t> axis = std::nullopt);
  /// A bool or an integer, [] or [1].
  std::string addConstant(int64_t value, bool isBool, bool isLine, const std::string &wanted);

  OnnxModel &model;
  KnownValues known;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;

private:
  llvm::StringSet<> used;
  int64_t bytes = 0, collisions = 0;
};

} // namespace fsdpc
