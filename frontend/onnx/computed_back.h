// Recovers a parameter that the file holds only as the result of invertible elementwise steps.
#pragma once

#include "frontend/onnx/computed_chain.h"
#include "frontend/onnx/folded_values.h"
#include "frontend/onnx/folding.h"

namespace fsdpc {

/// Success, or the reason for the failure in a few words: "clamp has no inverse". The reason is "" if the metadata give
/// none.
struct RestoredOrWhy {
  bool isDone = false;
  std::string why;
};

/// `folded_from` names the steps, and the tensor's own name is that of the last step. The scalars of the steps are
/// still in the file, or appear next to the parameter in the source line that a reader in the parameter's module
/// quotes. Of all orders that these allow, exactly one must reproduce the stored values: from the parameter if the file
/// has it, else from the inverted values. The graph then computes the tensor from the parameter.
class InvertedParameters {
public:
  explicit InvertedParameters(FoldedValues &values) : values(values) {}

  llvm::Expected<RestoredOrWhy> restore(const onnx::TensorProto &tensor, const Folding &folding);

private:
  struct Numbers;

  std::optional<Numbers> numbersOf(const onnx::TensorProto &tensor, const Folding &folding, size_t needed) const;
  std::optional<Numbers> numbersOfLine(const onnx::TensorProto &tensor, const Folding &folding) const;
  llvm::Expected<RestoredOrWhy> choose(const onnx::TensorProto &tensor, const Folding &folding,
                                       llvm::ArrayRef<ComputedChain> chains, llvm::StringRef line);
  void note(const onnx::TensorProto &tensor, const std::string &parameter, const ComputedChain &chain,
            llvm::ArrayRef<float> found, llvm::StringRef line);
  void evaluateChain(const onnx::TensorProto &tensor, const std::string &parameter, const ComputedChain &chain);

  FoldedValues &values;
};

} // namespace fsdpc
