// Equal values of initializers: whether the exporter merges them, and which values may be equal by coincidence.
#pragma once

#include "frontend/onnx/graph_index.h"

namespace fsdpc {

/// True if two vectors of the same size have equal values, both under the model's own names. A fresh model has biases
/// of zeros and norms of ones. Ignores absent and long vectors.
bool holdsEqualVectors(const OnnxModel &model, const GraphIndex &index);

/// Kinds of values that are equal in several modules although each module has its own. Reads each initializer once.
class ValueKinds {
public:
  explicit ValueKinds(const OnnxModel &model) : model(model) {}

  /// True if all elements are equal, and for absent values.
  bool isUniform(const onnx::TensorProto &tensor);
  /// True for a vector whose elements are monotonic. Random numbers are not, and values computed from positions
  /// (time_mix of RWKV) are the same in several modules.
  bool isMonotonic(const onnx::TensorProto &tensor);
  /// Why a value could not be read; empty if all could.
  const std::string &unread() const { return reason; }

private:
  const OnnxModel &model;
  llvm::StringMap<bool> uniform, monotonic;
  std::string reason;
};

} // namespace fsdpc
