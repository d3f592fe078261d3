// A loss that the graph computes itself.
#pragma once

#include "ir/builder.h"

namespace fsdpc {

/// Looks at the graph outputs of one float element for a loss that is a mean, a sum, or sum / count. Appends loss_terms
/// and loss_counts to the results and fills Module::facts, as import.h describes.
void appendModelLoss(Module &module, Builder &builder, llvm::SmallVectorImpl<Value *> &results,
                     std::vector<std::string> &names);

} // namespace fsdpc
