// When a pass dies (an assertion, a fault, the end of the stack), the module as it was before that pass is written out,
// and the exit code is 70.
#pragma once

#include "ir/module.h"
#include <string>

namespace fsdpc {

/// While it lives, a fatal signal writes what `remember` was last given to `path` and ends the process with exit 70.
/// One at a time.
class CrashReproducer {
public:
  explicit CrashReproducer(std::string path);
  ~CrashReproducer();
  CrashReproducer(const CrashReproducer &) = delete;
  CrashReproducer &operator=(const CrashReproducer &) = delete;

  /// `before` must live until the next call, or `forget`. It is printed only if the pass dies: to print it before each
  /// pass would take longer than the passes.
  void remember(llvm::StringRef pass, const Module &before);
  void forget();
};

} // namespace fsdpc
