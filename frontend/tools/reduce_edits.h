// What the reducer tries: edits that make a module smaller, each with numbered places where it can be made.
#pragma once

#include "ir/module.h"

namespace fsdpc {

struct ReductionEdit {
  llvm::StringRef name;
  /// How many places the module has.
  size_t (*count)(const Module &module);
  /// Edits the places [begin, end). What that leaves without a use, the reducer removes. The module need not verify:
  /// the reducer looks.
  void (*apply)(Module &module, size_t begin, size_t end);
};

/// In the order in which they are tried: what removes most comes first. Every successful edit lowers the number of
/// functions, results, nodes, arguments or elements, or ends a function earlier, so the reduction ends.
llvm::ArrayRef<ReductionEdit> reductionEdits();

/// Removes pure nodes without a use and parameters, states and units that nothing names.
void removeLeftovers(Module &module);

} // namespace fsdpc
