// Runs a planned module the way the emitted program may run at its worst: on bytes at the places of the plan, every
// rank and stream as far ahead of the others or behind them as the order of the plan allows. Shares nothing with the
// checker but ir/; it is the judge of mutants that the checker lets pass.
//
// Every rank has an arena per memory space and four lanes: compute, comm, reduce, copy. The compute lane runs nodes in
// program order. When a function is entered its collectives are issued to their lanes at once, as by a host that runs
// ahead. A collective begins on a rank when it is the next of its lane and on every rank of its group the operand is
// made and the `after` tokens are there; it then spoils its result and its scratch, reads the peers' operands one by
// one, and writes the result. A wait returns when all ranks of the group are done. Which lane moves next is random,
// with priorities that change now and then, so that lanes starve.
#pragma once

#include "ir/eval/evaluate.h"
#include "tests/mutation/random.h"
#include <deque>

namespace fsdpc::mutation {

/// What a run leaves: "step 0 rank 1 loss" -> bytes. Equal outcomes have equal bits.
using Outcome = std::map<std::string, std::vector<uint8_t>>;

/// Two training steps, the first with taps, an evaluation and an export. Nothing if the lanes block each other. Initial
/// values and inputs are the same whatever the seed; the seed decides what runs when.
std::optional<Outcome> runPlanned(const Module &module, uint64_t seed);

/// What a run leaves if every node and every sum leaves a hash of what it is and of all that it read, and whether two
/// accesses to a byte that may come in either order were seen: on whatever rank, in whatever order lanes move.
struct Meaning {
  Outcome outcome;
  bool hasRace = false;
};

/// Two programs without a race whose outcomes are equal here compute the same of the same bytes in every interleaving:
/// what orders lanes is the same in each, so each access meets the same bytes.
std::optional<Meaning> meaningOf(const Module &module);

} // namespace fsdpc::mutation
