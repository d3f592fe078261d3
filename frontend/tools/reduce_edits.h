// The edits of the reducer. Each makes a module smaller and has numbered positions where it can be made.
#pragma once

#include "ir/module.h"

namespace fsdpc {

struct ReductionEdit {
  llvm::StringRef name;
  /// The number of positions in the module.
  size_t (*count)(const Module &module);
  /// Edits the positions [begin, end). The reducer removes values that become unused. The module need not verify, since
  /// the reducer checks that.
  void (*apply)(Module &module, size_t begin, size_t end);
};

/// In the order in which they are tried, edits that remove most first. Every successful edit lowers the number of
/// functions, results, nodes, arguments or elements, or ends a function earlier, so the reduction ends.
llvm::ArrayRef<ReductionEdit> reductionEdits();

/// Removes pure nodes without a use and parameters, states and units that nothing names.
void removeLeftovers(Module &module);

} // namespace fsdpc
