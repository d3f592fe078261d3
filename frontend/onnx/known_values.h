// Which values of a graph constants decide, learnt node by node while the graph is still being made.
#pragma once

#include "frontend/onnx/inputs.h"
#include "frontend/onnx/model.h"
#include <memory>

namespace fsdpc {

/// Translates nodes into a module of its own, which goes away. Float initializers of more than one element count as
/// unknown: they are never read. Nodes that cannot be translated have unknown results.
class KnownValues {
public:
  KnownValues(const OnnxModel &model, llvm::ArrayRef<GraphInput> inputs);
  ~KnownValues();
  KnownValues(const KnownValues &) = delete;
  KnownValues &operator=(const KnownValues &) = delete;

  /// The tensor must outlive this.
  void add(const onnx::TensorProto &initializer);
  /// The node must outlive this; its inputs were added before.
  void add(const onnx::NodeProto &node);
  /// The one integer or bool of a value; none if it is not constant, not one or not an integer.
  std::optional<int64_t> integer(llvm::StringRef name);
  /// None if nothing that could be translated computes the name.
  std::optional<Type> type(llvm::StringRef name);

private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

} // namespace fsdpc
