// Checks that every event of a plan and every executed wait is needed: each is dropped alone, and the checker must
// reject the result.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace fsdpc::mutation {

struct NeededEvents {
  size_t all = 0, superfluous = 0;
  NeededEvents &operator+=(const NeededEvents &other) {
    all += other.all;
    superfluous += other.superfluous;
    return *this;
  }
};

/// Counts the events and waits of a planned module's text. Prints the superfluous ones, under `name`.
NeededEvents countNeeded(llvm::StringRef name, llvm::StringRef text);

} // namespace fsdpc::mutation
