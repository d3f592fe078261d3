#include "passes/graph/rewrite.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

// In the graph stage nothing writes state, so two reads of one state return the same version.
llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    mergeEqualNodes(*function, isRemovable);
  return llvm::Error::success();
}

} // namespace

const Pass eliminateCommon = {"eliminate_common", Stage::graph, Stage::graph, /*optional=*/true, run};

} // namespace fsdpc
