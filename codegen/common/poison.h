// Chooses the frees that the test build poisons. Poisoning fills the freed memory with bytes that are not a number in
// any type, so that a read of a freed value changes the computation.
//
// Poisoning adds a write to the compute stream. The write must not race with the next use of the memory, and must not
// add an order between streams that the program does not have without it. So where events order the streams, a free is
// not poisoned if
// - a collective on its memory may still run, since its wait is implied by a later one (Node::implied);
// - a transfer of this step or the next reuses its memory, and no event orders the transfer after the free. Such a
//   transfer is ordered only after another transfer, and may overwrite the memory at any time after that.
//
// Where the thread that frees also issues the transfers, all frees are poisoned except those of memory in use, where
// the previous node has written its result over the freed operand.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// Returns the `free` nodes to poison. Requires stage planned. `hasEvents` is that of the Dialect, `startOf` returns
/// the start of a future. Assumes that an event is recorded after the frees that directly follow the node in its
/// section, as SectionWriter prints it for such a program.
llvm::DenseSet<const Node *> freesToPoison(const Module &module, bool hasEvents,
                                           llvm::function_ref<const Node *(const Value *)> startOf);

} // namespace fsdpc
