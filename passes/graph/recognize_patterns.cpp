#include "passes/graph/recognizers.h"
#include "passes/graph/rewrite.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

Replacement asReplacement(Value *value) { return value ? Replacement{value} : Replacement(); }

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions) {
    rewriteNodes(*function, [](Node &node, Builder &builder) {
      for (auto recognize : {recognizeLayerNorm, recognizeRmsNorm, recognizeGelu, recognizeSilu})
        if (Value *value = recognize(node, builder))
          return Replacement{value};
      return Replacement();
    });
    RotaryRecognizer rotary(*function);
    rewriteNodes(*function,
                 [&](Node &node, Builder &builder) { return asReplacement(rotary.recognize(node, builder)); });
    AttentionRecognizer attention(*function);
    rewriteNodes(*function,
                 [&](Node &node, Builder &builder) { return asReplacement(attention.recognize(node, builder)); });
  }
  return llvm::Error::success();
}

} // namespace

const Pass recognizePatterns = {"recognize_patterns", Stage::graph, Stage::graph, /*optional=*/true, run};

} // namespace fsdpc
