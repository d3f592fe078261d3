// Runs a planned module under the worst legal schedule of the emitted program: on bytes at the places of the plan,
// every rank and stream as far ahead of or behind the others as the order of the plan allows. Shares only ir/ with the
// checker. Judges the mutants that the checker accepts.
//
// Every rank has an arena per memory space and four lanes: compute, comm, reduce, copy. The compute lane runs nodes in
// program order. When a function is entered, its collectives are immediately issued to their lanes, as by a host that
// runs ahead. A collective begins on a rank when it is the next of its lane and, on every rank of its group, the
// operand is computed and the `after` tokens are done. It then overwrites its result and its scratch with garbage,
// reads the peers' operands one by one, and writes the result. A wait returns when all ranks of the group are done. The
// next lane to advance is random, with priorities that change occasionally, so that lanes starve.
#pragma once

#include "ir/eval/evaluate.h"
#include "tests/mutation/random.h"
#include <deque>

namespace fsdpc::mutation {

/// The results of a run: "step 0 rank 1 loss" -> bytes. Equal outcomes are bitwise identical.
using Outcome = std::map<std::string, std::vector<uint8_t>>;

/// Runs two training steps, the first with taps, an evaluation and an export. Nullopt on a deadlock of the lanes.
/// Initial values and inputs do not depend on the seed, which only determines the interleaving.
std::optional<Outcome> runPlanned(const Module &module, uint64_t seed);

/// The outcome of a run in which every node and every sum writes a hash of itself and of all its inputs, and whether
/// two accesses to a byte may occur in either order. Does not depend on the interleaving.
struct Meaning {
  Outcome outcome;
  bool hasRace = false;
};

/// Two programs without a race and with equal outcomes here compute the same results in every interleaving: lanes are
/// ordered in the same way in each, so each access sees the same bytes.
std::optional<Meaning> meaningOf(const Module &module);

} // namespace fsdpc::mutation
