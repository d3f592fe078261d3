// `fsdpc reduce STAGE.fsir -- CHECK`: makes a module that shows a bug as small as possible, such that it still shows
// the bug.
//
// Delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002). Each kind of edit is
// tried at all positions together, then at halves, quarters, ... down to single positions. A candidate is kept if it
// verifies and still shows the bug. This repeats until no edit helps. The same input and check give the same result.
#pragma once

#include "frontend/tools/reduce_edits.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// Returns whether a candidate, which verifies, still shows the bug. An error ends the reduction.
using StillFails = llvm::function_ref<llvm::Expected<bool>(const Module &candidate)>;

struct Reduction {
  std::unique_ptr<Module> module;
  int64_t checks = 0; ///< candidates that were tried
};

/// Requires: stillFails(module). Prints sizes to `log` after each kind of edit that helped.
llvm::Expected<Reduction> reduceModule(const Module &module, StillFails stillFails, llvm::raw_ostream &log);

/// Runs CHECK once per candidate, with the candidate's file name as last argument and without a shell. Exit code 0
/// means that the bug is present. Its output is dropped. The result goes to `output` ("-" or empty: stdout), sizes to
/// stderr.
llvm::Error reduceFile(llvm::StringRef input, llvm::ArrayRef<std::string> check, llvm::StringRef output);

} // namespace fsdpc
