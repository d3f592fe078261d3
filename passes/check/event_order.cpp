#include "passes/check/event_order.h"

#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/check/access_map.h"
#include "passes/check/fault.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::check {

namespace {

using Sequence = llvm::SmallVector<const Function *, 8>;

class EventOrder {
public:
  explicit EventOrder(const Module &module) : module(module) {
    for (const CarriedOver &over : carriedOverSteps(module))
      leftOver[over.argument->value.get()] = over.start;
    for (const std::unique_ptr<Function> &function : module.functions)
      for (const Argument &argument : function->arguments())
        if (argument.kind == ArgumentKind::carry)
          taken.insert(argument.name);
  }

  llvm::Error run(const Sequence &sequence) {
    for (const Function *function : sequence)
      if (llvm::Error error = runFunction(*function))
        return error;
    return llvm::Error::success();
  }

private:
  llvm::Error runFunction(const Function &function) {
    const bool standsAlone = !runsInEveryStep(function.kind()) || module.microSteps > 1;
    if (standsAlone)
      joinAll();
    for (const Argument &argument : function.arguments())
      if (argument.kind == ArgumentKind::input)
        if (llvm::Error error = feed(function, argument))
          return error;
    for (Node *node : function) {
      if (llvm::Error error = runNode(*node))
        return error;
      if (node->schedule.records >= 0)
        events[node->schedule.records] = endOfLast(computeQueue);
    }
    if (standsAlone)
      joinAll();
    if (llvm::Error error = fetchResults(function))
      return error;
    // The program reads the results of a step before it enqueues the next one.
    if (function.kind() == FunctionKind::update)
      fetches = {};
    return llvm::Error::success();
  }

  llvm::Error runNode(const Node &node) {
    if (infoOf(node).has(startsTransfer))
      return runStart(node);
    if (node.op() == Op::wait)
      return runWait(node);
    const bool names = node.op() == Op::free || node.op() == Op::ret || node.op() == Op::read ||
                       node.op() == Op::write || infoOf(node).has(aliasesOperand) || isPackInPlace(node);
    if (names)
      return llvm::Error::success();
    if (llvm::Error error = access(node, computeQueue))
      return error;
    if (node.op() == Op::tap) // the host continues when it has the values
      for (QueueClock &clock : known)
        clock.join(endOfLast(computeQueue));
    return llvm::Error::success();
  }

  llvm::Error runStart(const Node &start) {
    const size_t queue = queueOf(start.schedule.stream);
    if (start.schedule.awaits >= 0)
      known[queue].join(events.lookup(start.schedule.awaits));
    if (llvm::Error error = access(start, queue))
      return error;
    ends[&start] = endOfLast(queue);
    return llvm::Error::success();
  }

  llvm::Error runWait(const Node &wait) {
    const Node *start = startOf(wait.operand(0));
    if (!start)
      return fault(Fault::useBeforeWait, wait, "no start is the origin of what it waits for");
    // Before the first step, transfers that a step finds in flight have no earlier start.
    if (!ends.contains(start))
      if (llvm::Error error = runFirstStart(wait, *start))
        return error;
    if (!wait.schedule.implied)
      known[computeQueue].join(ends.lookup(start));
    return llvm::Error::success();
  }

  llvm::Error runFirstStart(const Node &wait, const Node &start) {
    const size_t queue = queueOf(start.schedule.stream);
    advance(queue);
    const Value *arrives = wait.operand(0);
    if (llvm::Error error = write(wait, arrives->place, arrives->type().bytes(), queue))
      return error;
    ends[&start] = endOfLast(queue);
    return llvm::Error::success();
  }

  /// The start of a future of this function, of an earlier one of the step, or of the previous step.
  const Node *startOf(const Value *future) const {
    if (const Node *definer = future->definer())
      return definer;
    if (auto found = leftOver.find(future); found != leftOver.end())
      return found->second;
    for (const Argument &argument : future->function()->arguments())
      if (argument.value.get() == future)
        return returned.lookup(argument.name);
    return nullptr;
  }

  llvm::Error feed(const Function &function, const Argument &input) {
    advance(computeQueue);
    const Value *value = input.value.get();
    if (!isPlaced(value))
      return llvm::Error::success();
    if (const Node *other = unordered(value->place, value->type().bytes(), computeQueue, /*writes=*/true))
      return fault(Fault::missingEdge, function,
                   "input '" + input.name + "' is fed while '" + textOf(*other) + "' may still use its memory");
    accesses.write(value->place, value->type().bytes(), computeQueue, {count[computeQueue], nullptr});
    return llvm::Error::success();
  }

  /// The runtime fetches results that no function uses.
  llvm::Error fetchResults(const Function &function) {
    const Node *ret = function.returnNode();
    for (unsigned i = 0; ret && i < ret->operandCount(); ++i) {
      const Value *value = ret->operand(i);
      const std::string &name = ret->get<ReturnAttributes>().names[i];
      if (value->type().isFuture()) {
        if (const Node *start = startOf(value))
          returned[name] = start;
        continue;
      }
      if (taken.contains(name) || !isPlaced(value))
        continue;
      advance(computeQueue);
      if (llvm::Error error = read(*ret, value->place, value->type().bytes(), computeQueue, fetches))
        return error;
    }
    return llvm::Error::success();
  }

  static bool isPlaced(const Value *value) {
    return !value->type().isToken() && value->place.isPlaced() && value->type().bytes() > 0;
  }

  llvm::Error access(const Node &node, size_t queue) {
    advance(queue);
    for (const Value *operand : node.operands())
      if (isPlaced(operand))
        if (llvm::Error error = read(node, operand->place, operand->type().bytes(), queue, accesses))
          return error;
    if (node.schedule.workspaceBytes > 0)
      if (llvm::Error error = write(node, node.schedule.workspace, node.schedule.workspaceBytes, queue))
        return error;
    for (unsigned i = 0; i < node.resultCount(); ++i)
      if (isPlaced(node.result(i)))
        if (llvm::Error error = write(node, node.result(i)->place, node.result(i)->type().bytes(), queue))
          return error;
    return llvm::Error::success();
  }

  llvm::Error read(const Node &node, Place place, int64_t bytes, size_t queue, AccessMap &kept) {
    if (const Node *other = unordered(place, bytes, queue, /*writes=*/false))
      return fault(Fault::useBeforeWait, node,
                   "no event orders its reading after what writes there on the stream " +
                       nameOf(other->schedule.stream) + ": " + textOf(*other));
    kept.read(place, bytes, queue, {count[queue], &node});
    return llvm::Error::success();
  }

  llvm::Error write(const Node &node, Place place, int64_t bytes, size_t queue) {
    if (const Node *other = unordered(place, bytes, queue, /*writes=*/true))
      return fault(Fault::missingEdge, node,
                   "no event orders its writing after what uses that memory on the stream " +
                       nameOf(other->schedule.stream) + ": " + textOf(*other));
    accesses.write(place, bytes, queue, {count[queue], &node});
    return llvm::Error::success();
  }

  /// A node that may still access these bytes when the queue's current operation begins. Null: none.
  const Node *unordered(Place place, int64_t bytes, size_t queue, bool writes) const {
    const Node *found = nullptr;
    const QueueClock &knows = known[queue];
    const auto compare = [&](const LastAccesses &last) {
      if (last.writeQueue != queue && last.write.operation > knows.ended[last.writeQueue])
        found = last.write.node;
      for (size_t i = 0; writes && i < queueCount; ++i)
        if (i != queue && last.reads[i].operation > knows.ended[i])
          found = last.reads[i].node;
      return !found;
    };
    accesses.visit(place, bytes, compare);
    if (writes && !found)
      fetches.visit(place, bytes, compare);
    return found;
  }

  void advance(size_t queue) { ++count[queue]; }

  /// The operations that have ended when the queue's last operation has ended.
  QueueClock endOfLast(size_t queue) const {
    QueueClock clock = known[queue];
    clock.ended[queue] = count[queue];
    return clock;
  }

  void joinAll() {
    QueueClock all;
    all.ended = count;
    known.fill(all);
  }

  const Module &module;
  llvm::DenseMap<const Value *, const Node *> leftOver; ///< arguments for transfers in flight from the previous step
  llvm::StringSet<> taken;                              ///< names of results that some function uses
  llvm::StringMap<const Node *> returned;               ///< futures by name
  std::array<int64_t, queueCount> count = {};           ///< operations so far
  std::array<QueueClock, queueCount> known;             ///< operations that have ended when the queue's next one begins
  llvm::DenseMap<int32_t, QueueClock> events;           ///< as last recorded
  llvm::DenseMap<const Node *, QueueClock> ends;        ///< of starts, as last enqueued
  AccessMap accesses;
  AccessMap fetches; ///< results that the program reads; they are read by the end of the step
};

} // namespace

llvm::Error checkEvents(const Module &planned) {
  using Kind = FunctionKind;
  auto add = [&](Sequence &sequence, std::initializer_list<Kind> kinds) {
    for (Kind kind : kinds)
      if (const Function *function = planned.function(kind))
        sequence.append(runsInEveryMicroStep(kind) && planned.microSteps > 1 ? 2 : 1, function);
  };
  // Every effect of the previous step is visible in the second step, with and without taps, and after a standalone
  // function.
  Sequence steps, alone;
  add(steps, {Kind::start});
  add(alone, {Kind::start});
  for (bool isTapped : {false, false, true, true, false}) {
    add(steps, {Kind::prologue, Kind::microStep});
    if (isTapped)
      add(steps, {Kind::tapGradients});
    add(steps, {Kind::update});
  }
  add(alone, {Kind::evalStep, Kind::evalStep, Kind::predict, Kind::predict, Kind::exportWeights, Kind::exportAverages});
  for (const Sequence &sequence : {steps, alone})
    if (llvm::Error error = EventOrder(planned).run(sequence))
      return error;
  return llvm::Error::success();
}

} // namespace fsdpc::check
