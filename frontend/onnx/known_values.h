// Finds the values of a graph that constants determine, node by node while the graph is being built.
#pragma once

#include "frontend/onnx/inputs.h"
#include "frontend/onnx/model.h"
#include <memory>

namespace fsdpc {

/// Translates nodes into a separate temporary module. Float initializers of more than one element are never read and
/// count as unknown. Nodes that cannot be translated have unknown results.
class KnownValues {
public:
  KnownValues(const OnnxModel &model, llvm::ArrayRef<GraphInput> inputs);
  ~KnownValues();
  KnownValues(const KnownValues &) = delete;
  KnownValues &operator=(const KnownValues &) = delete;

  /// The tensor must outlive this.
  void add(const onnx::TensorProto &initializer);
  /// The node must outlive this. Requires its inputs to be added before.
  void add(const onnx::NodeProto &node);
  /// The single integer or bool of a value; nullopt if the value is not constant, has several elements or is no
  /// integer.
  std::optional<int64_t> integer(llvm::StringRef name);
  /// nullopt if no translated node computes the name.
  std::optional<Type> type(llvm::StringRef name);

private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

} // namespace fsdpc
