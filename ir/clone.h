// Copies of whole modules, for whoever plans one model many times.
#pragma once

#include "ir/module.h"

namespace fsdpc {

/// A module that prints as this one does and shares nothing with it but the bytes of constants, which nobody changes.
/// Linear in nodes and operands, whatever the constants' size.
std::unique_ptr<Module> clone(const Module &module);

} // namespace fsdpc
