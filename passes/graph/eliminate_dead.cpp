#include "passes/passes.h"
#include "passes/support/clone.h"

namespace fsdpc {

namespace {

// States stay even if this graph does not read them: parameters are saved and scalars are set by name.
llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    eraseDeadNodes(*function);
  return llvm::Error::success();
}

} // namespace

const Pass eliminateDead = {"eliminate_dead", Stage::graph, Stage::graph, /*optional=*/true, run};

} // namespace fsdpc
