#include "passes/graph/canonicalize.h"

#include "passes/graph/rewrite.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

Value *simplify(Node &node, Builder &builder) {
  if (isElementwise(node))
    return canonicalizeElementwise(node, builder);
  if (node.op() == Op::matmul)
    return canonicalizeMatmul(node, builder);
  return canonicalizeShape(node, builder);
}

Replacement foldOrSimplify(Node &node, Builder &builder) {
  if (Replacement constants = foldNode(node, builder); !constants.empty())
    return constants;
  Value *value = simplify(node, builder);
  return value ? Replacement{value} : Replacement();
}

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    rewriteNodes(*function, foldOrSimplify);
  return llvm::Error::success();
}

} // namespace

const Pass canonicalize = {"canonicalize", Stage::graph, Stage::graph, /*optional=*/true, run};

} // namespace fsdpc
