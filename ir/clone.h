// Copies of entire modules, for callers that plan one model many times.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// A copy that prints identically. It shares only the bytes of constants, which are immutable. Linear in nodes and
/// operands, independent of the size of constants.
std::unique_ptr<Module> clone(const Module &module);

} // namespace fsdpc
