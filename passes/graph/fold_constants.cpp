#include "passes/graph/rewrite.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions) {
    rewriteNodes(*function, [](Node &node, Builder &builder) { return foldNode(node, builder); });
    mergeEqualNodes(*function, [](const Node &node) { return node.op() == Op::constant; });
  }
  return llvm::Error::success();
}

} // namespace

const Pass foldConstants = {"fold_constants", Stage::graph, Stage::graph, /*optional=*/true, run};

} // namespace fsdpc
