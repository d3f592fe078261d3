// Programs of the test build call this at the frees of their IR (`fsdpc --test_build`). A value that is read after its
// free is then NaN, or an index outside every axis.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

/// The value of every freed byte: NaN in all float types, -1 as an integer.
inline constexpr int poisonByte = 0xff;

/// FSDPC_POISON=off leaves freed memory unchanged, so that one program can run both ways. Read once.
bool poisonsFreedMemory();

/// Fills `bytes` at `place`, in program order. Implemented by each target.
void poison(const Context &context, Place place, std::int64_t bytes);

} // namespace fsdpc::rt
