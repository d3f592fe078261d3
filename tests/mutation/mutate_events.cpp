// Faults of events, which order the streams of a device.
#include "ir/text/text.h"
#include "tests/mutation/mutators.h"
#include "tests/mutation/plan_edit.h"

namespace fsdpc::mutation {

namespace {

using What = std::optional<std::string>;

bool recordsEvent(const Node &node) { return node.schedule.records >= 0; }
bool isExecuted(const Node &node) { return node.op() == Op::wait && !node.schedule.implied; }
bool awaitsEvent(const Node &node) { return node.schedule.awaits >= 0; }

/// Compute nodes of the same function, other than `node`, that may record an event.
std::vector<Node *> otherRecorders(const Module &module, const Node &node) {
  return nodesWhere(module, [&](const Node &other) {
    return other.function() == node.function() && other.schedule.stream == Stream::compute &&
           other.schedule.records < 0 && other.op() != Op::ret && !isStart(other);
  });
}

} // namespace

What dropEventAt(Module &module, size_t which) {
  std::vector<Node *> recorders = nodesWhere(module, recordsEvent);
  if (which >= recorders.size())
    return std::nullopt;
  Node *recorder = recorders[which];
  for (Node *waiter :
       nodesWhere(module, [&](const Node &node) { return node.schedule.awaits == recorder->schedule.records; }))
    waiter->schedule.awaits = -1;
  recorder->schedule.records = -1;
  return "no event of '" + toText(*recorder) + "'";
}

What dropEvent(Module &module, Random &random) {
  const size_t many = nodesWhere(module, recordsEvent).size();
  return many == 0 ? std::nullopt : dropEventAt(module, random.below(many));
}

What dropDeviceWaitAt(Module &module, size_t which) {
  std::vector<Node *> waits = nodesWhere(module, isExecuted);
  if (which >= waits.size())
    return std::nullopt;
  waits[which]->schedule.implied = true;
  return "not carried out: '" + toText(*waits[which]) + "'";
}

What dropDeviceWait(Module &module, Random &random) {
  const size_t many = nodesWhere(module, isExecuted).size();
  return many == 0 ? std::nullopt : dropDeviceWaitAt(module, random.below(many));
}

/// The event is recorded by another node.
What moveRecord(Module &module, Random &random) {
  std::optional<Node *> recorder = random.pick(nodesWhere(module, recordsEvent));
  std::optional<Node *> other = recorder ? random.pick(otherRecorders(module, **recorder)) : std::nullopt;
  if (!other)
    return std::nullopt;
  std::swap((*recorder)->schedule.records, (*other)->schedule.records);
  return "recorded by '" + toText(**other) + "'";
}

/// The event is awaited by another start, of the same stream or of another.
What moveAwait(Module &module, Random &random) {
  std::optional<Node *> waiter = random.pick(nodesWhere(module, awaitsEvent));
  std::optional<Node *> other =
      random.pick(nodesWhere(module, [](const Node &node) { return isStart(node) && node.schedule.awaits < 0; }));
  if (!waiter || !other)
    return std::nullopt;
  std::swap((*waiter)->schedule.awaits, (*other)->schedule.awaits);
  return "awaited by '" + toText(**other) + "'";
}

What swapEvents(Module &module, Random &random) {
  std::vector<Node *> waiters = nodesWhere(module, awaitsEvent);
  std::optional<Node *> a = random.pick(waiters), b = random.pick(waiters);
  if (!a || (*a)->schedule.awaits == (*b)->schedule.awaits)
    return std::nullopt;
  std::swap((*a)->schedule.awaits, (*b)->schedule.awaits);
  return "'" + toText(**a) + "' and '" + toText(**b) + "' await each other's events";
}

} // namespace fsdpc::mutation
