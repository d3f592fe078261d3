#include "runtime/common/collective_trace.h"

#include <cstdio>
#include <string>

namespace fsdpc::rt {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

} // namespace

std::string withoutBlanks(std::string text) {
  for (char &c : text)
    if (static_cast<unsigned char>(c) <= ' ')
      c = '_';
  return text;
}

std::string closingDetails(const TracedCollective &record) {
  return (record.unit[0] ? "unit=" + withoutBlanks(record.unit) + " " : "") + "seq=" + std::to_string(record.sequence) +
         " op=" + record.op;
}

std::string inWords(const TracedCollective &record) {
  return std::string(record.op) + (record.unit[0] ? " of " + std::string(record.unit) : "");
}

Failure lateFailure(const TracedCollective &record, int missingRank, double seconds) {
  char waited[96];
  std::snprintf(waited, sizeof waited, "rank %d did not join within %g s: ", missingRank, seconds);
  Failure failure(ExitCode::timeout,
                  waited + inWords(record) + ", collective " + std::to_string(record.sequence) + " of the run");
  failure.details = closingDetails(record) + " missing=" + std::to_string(missingRank);
  return failure;
}

Failure stuckFailure(const TracedCollective &record, double seconds) {
  char waited[96];
  std::snprintf(waited, sizeof waited, " of the run, has not ended within %g s, and no rank is seen to lag", seconds);
  Failure failure(ExitCode::timeout, inWords(record) + ", collective " + std::to_string(record.sequence) + waited);
  failure.details = closingDetails(record);
  return failure;
}

void CollectiveTrace::start(const TracedCollective &record, std::int64_t now) {
  Slot &slot = slots_[record.sequence % capacity];
  slot.sequence.store(record.sequence, relaxed);
  slot.op.store(record.op, relaxed);
  slot.unit.store(record.unit, relaxed);
  slot.name.store(record.name, relaxed);
  slot.bytes.store(record.bytes, relaxed);
  slot.group.store(record.group, relaxed);
  slot.fingerprint.store(record.fingerprint, relaxed);
  for (auto *field : {&slot.begun, &slot.done, &slot.waited})
    field->store(0, relaxed);
  slot.operandHash.store(0, relaxed);
  slot.resultHash.store(0, relaxed);
  slot.started.store(now, relaxed);
  last_.store(record.sequence, std::memory_order_release);
}

void CollectiveTrace::stamp(std::uint64_t sequence, Field<std::int64_t> Slot::*moment, std::int64_t now) {
  Slot &slot = slots_[sequence % capacity];
  if (slot.sequence.load(relaxed) == sequence)
    (slot.*moment).store(now, relaxed);
}

void CollectiveTrace::hash(std::uint64_t sequence, std::uint64_t operand, std::uint64_t result) {
  Slot &slot = slots_[sequence % capacity];
  if (slot.sequence.load(relaxed) != sequence)
    return;
  slot.operandHash.store(operand, relaxed);
  slot.resultHash.store(result, relaxed);
}

void CollectiveTrace::endWait(std::uint64_t sequence, std::int64_t now) {
  waitingFor_.store(0, relaxed);
  stamp(sequence, &Slot::waited, now);
}

std::optional<TracedCollective> CollectiveTrace::at(std::uint64_t sequence) const {
  const Slot &slot = slots_[sequence % capacity];
  if (sequence == 0 || slot.sequence.load(std::memory_order_acquire) != sequence)
    return std::nullopt;
  TracedCollective record;
  record.sequence = sequence;
  record.op = slot.op.load(relaxed);
  record.unit = slot.unit.load(relaxed);
  record.name = slot.name.load(relaxed);
  record.bytes = slot.bytes.load(relaxed);
  record.group = slot.group.load(relaxed);
  record.fingerprint = slot.fingerprint.load(relaxed);
  record.operandHash = slot.operandHash.load(relaxed);
  record.resultHash = slot.resultHash.load(relaxed);
  record.startedNanoseconds = slot.started.load(relaxed);
  record.begunNanoseconds = slot.begun.load(relaxed);
  record.doneNanoseconds = slot.done.load(relaxed);
  record.waitedNanoseconds = slot.waited.load(relaxed);
  return record;
}

} // namespace fsdpc::rt
