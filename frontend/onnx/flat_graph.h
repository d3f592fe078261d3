// The nodes that control flow is unrolled to, as they come; and what is known of their values.
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

/// The graph without control flow, as it grows.
class FlatGraph {
public:
  FlatGraph(OnnxModel &model, llvm::ArrayRef<GraphInput> inputs);

  /// `wanted`, or that with something behind it, never to be given again.
  std::string unusedName(const std::string &wanted);
  /// Inputs and outputs are named by now.
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
