// Is every event of a plan needed, and every wait that is carried out? Each is dropped by itself: the checker must miss
// it.
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

/// Of a planned module's text. Prints what is superfluous, under `name`.
NeededEvents countNeeded(llvm::StringRef name, llvm::StringRef text);

} // namespace fsdpc::mutation
