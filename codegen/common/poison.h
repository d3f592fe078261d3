// Which frees the test build's program poisons: fills what they free with bytes that are no number of any type, so that
// whoever reads a value behind its free computes something else.
//
// A poisoning is a write on the compute stream where the program has none. It must not race with what the memory is
// taken for next, and must not bring an order between streams that the program without it does not have. So where
// events order the streams, a free stays without one if
// - a collective on its memory may still run: its wait is implied by a later one (Node::implied);
// - a transfer takes its memory, of this step or the next, that no event orders behind the free. Such a transfer is
//   ordered behind another transfer alone, and may spoil the memory at any time after that.
// Where the thread that frees also issues the transfers, all frees are poisoned but those of memory that is in use: the
// node before has written its result over the operand that is freed.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// The nodes `free` to poison. Requires stage planned; `hasEvents` as Dialect says, `startOf` gives the start behind a
/// future. Assumes that an event is recorded behind the frees that directly follow the node in its section, as
/// SectionWriter prints it for such a program.
llvm::DenseSet<const Node *> freesToPoison(const Module &module, bool hasEvents,
                                           llvm::function_ref<const Node *(const Value *)> startOf);

} // namespace fsdpc
