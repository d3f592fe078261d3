// If a pass crashes (an assertion, a segmentation fault, a stack overflow), the module before that pass is written out,
// and the exit code is 70.
#pragma once

#include "ir/module.h"
#include <string>

namespace fsdpc {

/// While it exists, a fatal signal writes the module last given to `remember` to `path` and ends the process with exit
/// code 70. Only one may exist at a time.
class CrashReproducer {
public:
  explicit CrashReproducer(std::string path);
  ~CrashReproducer();
  CrashReproducer(const CrashReproducer &) = delete;
  CrashReproducer &operator=(const CrashReproducer &) = delete;

  /// `before` must live until the next call, or `forget`. It is printed only if the pass crashes, since printing it
  /// before each pass would take longer than the passes.
  void remember(llvm::StringRef pass, const Module &before);
  void forget();
};

} // namespace fsdpc
