// A parameter that the file holds as the result of elementwise steps only is computed back.
#pragma once

#include "frontend/onnx/computed_chain.h"
#include "frontend/onnx/folded_values.h"
#include "frontend/onnx/folding.h"

namespace fsdpc {

/// Done, or why not in a few words: "clamp has no inverse". "" where the metadata say nothing of use.
struct RestoredOrWhy {
  bool isDone = false;
  std::string why;
};

/// `folded_from` names the steps, and the tensor's own name the last one. Their numbers are scalars that are still in
/// the file, or stand beside the parameter in the source line that a reader in the parameter's module quotes. Of all
/// orders that these allow, exactly one has to give the stored values: from the parameter where the file has it, else
/// from what is computed back. The graph then computes forth.
class ComputedBack {
public:
  explicit ComputedBack(FoldedValues &values) : values(values) {}

  llvm::Expected<RestoredOrWhy> restore(const onnx::TensorProto &tensor, const Folding &folding);

private:
  struct Numbers;

  std::optional<Numbers> numbersOf(const onnx::TensorProto &tensor, const Folding &folding, size_t needed) const;
  std::optional<Numbers> numbersOfLine(const onnx::TensorProto &tensor, const Folding &folding) const;
  llvm::Expected<RestoredOrWhy> choose(const onnx::TensorProto &tensor, const Folding &folding,
                                       llvm::ArrayRef<ComputedChain> chains, llvm::StringRef line);
  void note(const onnx::TensorProto &tensor, const std::string &parameter, const ComputedChain &chain,
            llvm::ArrayRef<float> found, llvm::StringRef line);
  void computeForth(const onnx::TensorProto &tensor, const std::string &parameter, const ComputedChain &chain);

  FoldedValues &values;
};

} // namespace fsdpc
