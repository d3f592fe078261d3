// When a pass dies (an assertion, a fault), the module as it was before that pass is written out, and the exit code
// is 70.
#pragma once

#include "llvm/ADT/StringRef.h"
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

  void remember(llvm::StringRef pass, const std::string &textBefore);
};

} // namespace fsdpc
