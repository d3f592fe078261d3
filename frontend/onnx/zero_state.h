// What the exporter computed from a recurrence's first state, which is zero: a product with it, and a linear layer of
// it. No gradient flows through the state into what it was multiplied with.
#pragma once

#include "frontend/onnx/folded_values.h"
#include "frontend/onnx/folding.h"

namespace fsdpc {

class ZeroState {
public:
  explicit ZeroState(FoldedValues &values) : values(values) {}

  /// A product that is zero everywhere, of a parameter without a zero: `mul` is among the operations, and the others
  /// make no zero of the parameter's values. Then the other factor is zero, and the product a constant.
  llvm::Expected<bool> restoreProduct(const onnx::TensorProto &tensor, const Folding &folding);

  /// A linear layer's result whose every row is the layer's bias, bit for bit, where the weight takes nothing but zero
  /// to zero (its columns are independent). Then its input was zero, and the result is the bias, broadcast. Both are in
  /// the file.
  llvm::Expected<bool> restoreLinear(const onnx::TensorProto &tensor, const Folding &folding,
                                     llvm::ArrayRef<std::string> parameters);

private:
  FoldedValues &values;
};

} // namespace fsdpc
