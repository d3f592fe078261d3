// What programs of the test build call at the frees of their IR (`fsdpc --test_build`): a value that is read behind its
// free has become NaN, or an index that no axis has.
#pragma once

#include "runtime/common/program.h"

namespace fsdpc::rt {

/// Every byte of what is freed: NaN in all float types, -1 as an integer.
inline constexpr int poisonByte = 0xff;

/// FSDPC_POISON=off leaves freed memory as it is, so that one program can be run both ways. Read once.
bool poisonsFreedMemory();

/// Fills `bytes` at `place` in the order of what the program computes: on cuda on the compute stream. Each target has
/// one.
void poison(const Context &context, Place place, std::int64_t bytes);

} // namespace fsdpc::rt
