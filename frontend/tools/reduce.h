// `fsdpc reduce STAGE.fsir -- CHECK`: makes a module that shows a fault as small as it can and still have it show.
//
// Delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002): each kind of edit is
// tried on all places at once, then on halves, quarters, ... down to single places; a candidate stays if it verifies
// and still shows the fault; this repeats until no edit helps. The same input and check give the same result.
#pragma once

#include "frontend/tools/reduce_edits.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// Whether a candidate, which verifies, still shows the fault. An error ends the reduction.
using StillFails = llvm::function_ref<llvm::Expected<bool>(const Module &candidate)>;

struct Reduction {
  std::unique_ptr<Module> module;
  int64_t checks = 0; ///< candidates that were tried
};

/// Requires: stillFails(module). Sizes go to `log` after each kind of edit that helped.
llvm::Expected<Reduction> reduceModule(const Module &module, StillFails stillFails, llvm::raw_ostream &log);

/// Runs CHECK once per candidate, with the candidate's file name as last argument and without a shell; exit 0 means
/// that the fault is there. Its output is dropped. The result goes to `output` ("-" or empty: stdout), sizes to stderr.
llvm::Error reduceFile(llvm::StringRef input, llvm::ArrayRef<std::string> check, llvm::StringRef output);

} // namespace fsdpc
