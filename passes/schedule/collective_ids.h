#pragma once

#include "ir/module.h"

namespace fsdpc {

/// Assigns ids in the order of issue through all functions, the same on every rank.
void numberCollectives(Module &module);

} // namespace fsdpc
