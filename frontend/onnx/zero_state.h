// Restores values that the exporter computed from a recurrence's first state, which is zero: a product with it, and a
// linear layer of it. No gradient flows through the state to the other factor.
#pragma once

#include "frontend/onnx/folded_values.h"
#include "frontend/onnx/folding.h"

namespace fsdpc {

class ZeroState {
public:
  explicit ZeroState(FoldedValues &values) : values(values) {}

  /// Handles a product that is zero everywhere, of a parameter without zeros: `mul` is among the operations, and the
  /// others do not make the parameter's values zero. Then the other factor is zero, and the product is a constant.
  llvm::Expected<bool> restoreProduct(const onnx::TensorProto &tensor, const Folding &folding);

  /// Handles a linear layer's result in which every row is bitwise the layer's bias, where the weight maps only zero to
  /// zero (its columns are independent). Then the input was zero, and the result is the bias, broadcast. Both are in
  /// the file.
  llvm::Expected<bool> restoreLinear(const onnx::TensorProto &tensor, const Folding &folding,
                                     llvm::ArrayRef<std::string> parameters);

private:
  FoldedValues &values;
};

} // namespace fsdpc
