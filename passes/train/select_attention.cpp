#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

std::string remarkOn(const Node &node, const std::string &reason) {
  std::string where = node.source.empty() ? infoOf(node).name.str() : node.source;
  return where + ": attention keeps its own kernel: " + reason;
}

llvm::Error run(Module &module, const PassContext &context) {
  if (!context.options.attentionByLibrary)
    return llvm::Error::success();
  for (const std::unique_ptr<Function> &function : module.functions)
    for (Node *node : *function) {
      if (!isAttention(*node))
        continue;
      std::optional<std::string> reason = context.target.whyNotByLibrary(*node);
      node->get<AttentionAttributes>().byLibrary = !reason;
      if (reason)
        context.remarks.push_back(remarkOn(*node, *reason));
    }
  return llvm::Error::success();
}

} // namespace

const Pass selectAttention = {"select_attention", Stage::train, Stage::train, /*optional=*/true, run};

} // namespace fsdpc
