#include "tests/mutation/event_oracle.h"

#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include <array>

namespace fsdpc::mutation {

namespace {

constexpr size_t queues = 1 + std::size(transferStreams);

struct Extent {
  Place place;
  int64_t bytes;
  bool writes;
};

struct Operation {
  std::string text;
  std::vector<Extent> extents;
  std::vector<size_t> after; ///< operations that must have ended when it begins
};

class Run {
public:
  explicit Run(const Module &module) : module(module) {
    for (const CarriedOver &over : carriedOverSteps(module))
      leftOver[over.argument->value.get()] = over.start;
    for (const auto &function : module.functions)
      for (const Argument &argument : function->arguments())
        if (argument.kind == ArgumentKind::carry)
          taken.insert(argument.name);
  }

  void call(FunctionKind kind, int times = 1) {
    for (int i = 0; i < times; ++i)
      if (const Function *function = module.function(kind))
        run(*function);
  }

  void join() {
    Operation all{"join", {}, {}};
    for (const auto &last : lastOn)
      if (last)
        all.after.push_back(*last);
    lastOn.fill(add(std::move(all)));
  }

  std::optional<std::string> race() const {
    if (operations.size() > maxOperations)
      return std::nullopt;
    std::vector<llvm::BitVector> before;
    for (size_t i = 0; i < operations.size(); ++i) {
      llvm::BitVector &own = before.emplace_back(operations.size());
      for (size_t earlier : operations[i].after) {
        own |= before[earlier];
        own.set(earlier);
      }
      for (size_t k = 0; k < i; ++k)
        if (!own.test(k) && conflict(operations[i], operations[k]))
          return operations[k].text + " and " + operations[i].text;
    }
    return "";
  }

private:
  static bool overlap(const Extent &a, const Extent &b) {
    return (a.writes || b.writes) && a.place.space == b.place.space &&
           a.place.offsetBytes < b.place.offsetBytes + b.bytes && b.place.offsetBytes < a.place.offsetBytes + a.bytes;
  }
  static bool conflict(const Operation &a, const Operation &b) {
    return llvm::any_of(a.extents, [&](const Extent &one) {
      return llvm::any_of(b.extents, [&](const Extent &other) { return overlap(one, other); });
    });
  }

  size_t add(Operation operation) {
    operations.push_back(std::move(operation));
    return operations.size() - 1;
  }

  /// Orders the operation after the queue's last one and after the last tap, for which the host waited before.
  size_t enqueue(size_t queue, Operation operation) {
    if (lastOn[queue])
      operation.after.push_back(*lastOn[queue]);
    if (lastTap)
      operation.after.push_back(*lastTap);
    lastOn[queue] = add(std::move(operation));
    return *lastOn[queue];
  }

  static void touch(Operation &operation, const Value *value, bool writes) {
    if (!value->type().isToken() && value->place.isPlaced() && value->type().bytes() > 0)
      operation.extents.push_back({value->place, value->type().bytes(), writes});
  }

  static Operation operationOf(const Node &node) {
    Operation operation{toText(node), {}, {}};
    for (const Value *operand : node.operands())
      touch(operation, operand, false);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      touch(operation, node.result(i), true);
    if (node.schedule.workspaceBytes > 0)
      operation.extents.push_back({node.schedule.workspace, node.schedule.workspaceBytes, true});
    return operation;
  }

  void run(const Function &function) {
    const bool alone = !runsInEveryStep(function.kind()) || module.microSteps > 1;
    if (alone)
      join();
    for (const Argument &argument : function.arguments())
      if (argument.kind == ArgumentKind::input) {
        Operation fed{"input " + argument.name, {}, {}};
        touch(fed, argument.value.get(), true);
        enqueue(0, std::move(fed));
      }
    for (const Node *node : function) {
      runNode(*node);
      if (node->schedule.records >= 0 && lastOn[0])
        recorded[node->schedule.records] = *lastOn[0];
    }
    if (alone)
      join();
    const Node *ret = function.returnNode();
    for (unsigned i = 0; i < ret->operandCount(); ++i)
      takeResult(ret->operand(i), ret->get<ReturnAttributes>().names[i]);
  }

  void takeResult(const Value *value, const std::string &name) {
    if (value->type().isFuture())
      returned[name] = startOf(value);
    else if (!taken.contains(name)) {
      Operation fetched{"result " + name, {}, {}};
      touch(fetched, value, false);
      enqueue(0, std::move(fetched));
    }
  }

  void runNode(const Node &node) {
    if (infoOf(node).has(startsTransfer)) {
      Operation start = operationOf(node);
      if (auto event = recorded.find(node.schedule.awaits); node.schedule.awaits >= 0 && event != recorded.end())
        start.after.push_back(event->second);
      started[&node] = enqueue(1 + laneOf(node.schedule.stream), std::move(start));
    } else if (node.op() == Op::wait) {
      runWait(node);
    } else if (node.op() != Op::free && node.op() != Op::ret && node.op() != Op::read && node.op() != Op::write &&
               !infoOf(node).has(aliasesOperand) && !isPackInPlace(node)) {
      const size_t operation = enqueue(0, operationOf(node));
      if (node.op() == Op::tap)
        lastTap = operation;
    }
  }

  void runWait(const Node &wait) {
    const Node *start = startOf(wait.operand(0));
    if (!started.contains(start)) {
      Operation first{"first " + toText(*start), {}, {}};
      touch(first, wait.operand(0), true);
      started[start] = enqueue(1 + laneOf(start->schedule.stream), std::move(first));
    }
    if (!wait.schedule.implied)
      enqueue(0, {"wait", {}, {started[start]}});
  }

  const Node *startOf(const Value *future) const {
    if (future->definer())
      return future->definer();
    if (auto found = leftOver.find(future); found != leftOver.end())
      return found->second;
    for (const Argument &argument : future->function()->arguments())
      if (argument.value.get() == future)
        return returned.lookup(argument.name);
    return nullptr;
  }

  const Module &module;
  llvm::DenseMap<const Value *, const Node *> leftOver;
  llvm::StringSet<> taken;
  llvm::StringMap<const Node *> returned;
  std::vector<Operation> operations;
  std::array<std::optional<size_t>, queues> lastOn;
  std::optional<size_t> lastTap;
  llvm::DenseMap<int32_t, size_t> recorded;
  llvm::DenseMap<const Node *, size_t> started;
};

} // namespace

std::optional<std::string> findRace(const Module &planned) {
  using Kind = FunctionKind;
  Run steps(planned), alone(planned);
  steps.call(Kind::start);
  alone.call(Kind::start);
  const int calls = planned.microSteps > 1 ? 2 : 1;
  for (bool isTapped : {false, false, true, true, false}) {
    steps.call(Kind::prologue, calls);
    steps.call(Kind::microStep, calls);
    steps.call(Kind::tapGradients, isTapped ? 1 : 0);
    steps.call(Kind::update);
  }
  alone.call(Kind::evalStep, 2);
  alone.call(Kind::predict, 2);
  alone.call(Kind::exportWeights);
  alone.call(Kind::exportAverages);
  std::optional<std::string> found = steps.race();
  return found && found->empty() ? alone.race() : found;
}

} // namespace fsdpc::mutation
