// (V15) to (V17), (V19) to (V22): lifetime of memory, offsets, host and device memory, and the events that starts
// await.
//
// Frees are inserted in two steps: those of gathered buffers with the gathers (sharded), all others before planning
// (async). Between passes a module has none of a kind or all of them. (V16) checks this. In the planned stage it
// requires all.
#include "ir/carried.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "ir/verify_rules.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc::rules {

namespace {

/// Memory of a state or of the program, which no function frees.
bool isPermanent(const Value *root) {
  return isPermanentConstant(*root) || (root->definer() && root->definer()->op() == Op::read);
}

/// The last function that uses a carried argument.
using LastReceivers = llvm::StringMap<FunctionKind>;

/// Arguments that the previous step left to this one. They are always gathers.
using CarriedGathers = llvm::DenseSet<const Value *>;

struct RequiredFrees {
  bool gathered = false;
  bool others = false;
};

/// The buffers of one function. A value and all its views and reshapes share one buffer.
class Buffers {
public:
  Buffers(const Function &function, const CarriedGathers &carriedGathers)
      : function(function), carriedGathers(carriedGathers) {}
  const Value *rootOf(const Value *value) const {
    auto found = roots.find(value);
    return found == roots.end() ? value : found->second;
  }
  /// Checks (V15), and collects the facts for (V16).
  llvm::Error walk(const LastReceivers &lastReceivers);
  llvm::Error checkComplete(const LastReceivers &lastReceivers, RequiredFrees required) const;
  RequiredFrees found() const;

private:
  bool isGathered(const Value *root) const;
  llvm::Error checkFree(const Node &node, const LastReceivers &lastReceivers);
  bool takenLater(const Value *argument, const LastReceivers &lastReceivers) const;
  llvm::Error checkFreed(const Value *value, RequiredFrees required) const;

  const Function &function;
  const CarriedGathers &carriedGathers;
  llvm::DenseMap<const Value *, const Value *> roots;
  llvm::DenseMap<const Value *, const Node *> freedBy;
  /// Buffers that need no free: returned, part of a pack, or written over a state.
  llvm::DenseSet<const Value *> handedOn;
};

bool Buffers::isGathered(const Value *root) const {
  const Node *definer = root->definer();
  if (!definer || definer->op() == Op::allGather)
    return definer != nullptr;
  if (definer->op() != Op::wait)
    return false;
  const Node *start = definer->operand(0)->definer();
  return start ? start->op() == Op::allGatherStart : carriedGathers.contains(definer->operand(0));
}

bool Buffers::takenLater(const Value *argument, const LastReceivers &lastReceivers) const {
  const Argument &entry = function.arguments()[argument->resultIndex()];
  return lastReceivers.lookup(entry.name) > function.kind();
}

llvm::Error Buffers::checkFree(const Node &node, const LastReceivers &lastReceivers) {
  const Value *root = rootOf(node.operand(0));
  if (isPermanent(root))
    return broken("V15", node, "the memory of a state or a constant is never freed");
  bool input = !root->definer() && function.arguments()[root->resultIndex()].kind == ArgumentKind::input;
  if (input)
    return broken("V15", node, "an input is never freed");
  if (!root->definer() && takenLater(root, lastReceivers))
    return broken("V15", node, "a later function takes this carried argument");
  if (!freedBy.try_emplace(root, &node).second)
    return broken("V15", node, "the buffer was freed before");
  return llvm::Error::success();
}

llvm::Error Buffers::walk(const LastReceivers &lastReceivers) {
  for (Node *node : function) {
    if (node->op() == Op::free) {
      if (llvm::Error error = checkFree(*node, lastReceivers))
        return error;
      continue;
    }
    for (const Value *operand : node->operands())
      if (freedBy.contains(rootOf(operand)))
        return broken("V15", *node, nameIn(function, operand) + " is used after the free of its buffer");
    bool handsOn = node->op() == Op::ret || node->op() == Op::pack || node->op() == Op::write;
    for (const Value *operand : node->operands())
      if (handsOn)
        handedOn.insert(rootOf(operand));
    if (infoOf(*node).has(aliasesOperand))
      roots[node->result()] = rootOf(node->operand(0));
  }
  return llvm::Error::success();
}

RequiredFrees Buffers::found() const {
  RequiredFrees found;
  for (const auto &[root, node] : freedBy)
    (isGathered(root) ? found.gathered : found.others) = true;
  return found;
}

llvm::Error Buffers::checkFreed(const Value *value, RequiredFrees required) const {
  bool demanded = isGathered(value) ? required.gathered : required.others;
  bool owns = value->type().isTensor() && rootOf(value) == value && !isPermanent(value) && !handedOn.contains(value) &&
              !(value->definer() && infoOf(*value->definer()).has(inPlace));
  if (!demanded || !owns || freedBy.contains(value))
    return llvm::Error::success();
  std::string message = "the buffer of " + nameIn(function, value) + " is never freed";
  return value->definer() ? broken("V16", *value->definer(), message) : broken("V16", function, message);
}

llvm::Error Buffers::checkComplete(const LastReceivers &lastReceivers, RequiredFrees required) const {
  for (const Argument &argument : function.arguments())
    if (argument.kind == ArgumentKind::carry && !takenLater(argument.value.get(), lastReceivers))
      if (llvm::Error error = checkFreed(argument.value.get(), required))
        return error;
  for (Node *node : function)
    for (unsigned i = 0; i < node->resultCount(); ++i)
      if (llvm::Error error = checkFreed(node->result(i), required))
        return error;
  return llvm::Error::success();
}

llvm::Error checkFuture(const Function &function, const Value *value) {
  if (!value->type().isFuture())
    return llvm::Error::success();
  unsigned waits = 0;
  for (Use *use = value->uses(); use; use = use->next())
    waits += use->user()->op() == Op::wait || use->user()->op() == Op::ret;
  if (waits == 1)
    return llvm::Error::success();
  std::string message = nameIn(function, value) + " has " + std::to_string(waits) + " waits instead of one";
  return value->definer() ? broken("V17", *value->definer(), message) : broken("V17", function, message);
}

llvm::Error checkFutures(const Module &module) {
  llvm::DenseSet<int64_t> ids;
  for (const std::unique_ptr<Function> &function : module.functions) {
    for (const Argument &argument : function->arguments())
      if (llvm::Error error = checkFuture(*function, argument.value.get()))
        return error;
    for (Node *node : *function) {
      for (unsigned i = 0; i < node->resultCount(); ++i)
        if (llvm::Error error = checkFuture(*function, node->result(i)))
          return error;
      if (!startsCollective(*node))
        continue;
      int64_t id = node->get<CollectiveAttributes>().id;
      // Ids count up from 0. DenseSet reserves the two extreme values as markers.
      if (id < 0 || id > INT32_MAX || !ids.insert(id).second)
        return broken("V17", *node, "its id is missing or belongs to another collective");
    }
  }
  return llvm::Error::success();
}

class PlaceChecker {
public:
  explicit PlaceChecker(const Module &module) : module(module) {}
  llvm::Error run();

private:
  llvm::Error checkNode(const Node &node);
  llvm::Error checkPlaced(const Node &node);
  llvm::Error checkAlias(const Node &node);
  llvm::Error checkPack(const Node &node);
  llvm::Error checkSpaces(const Node &node) const;
  llvm::Error checkCarried(const Function &function, const Argument &argument);
  static bool fits(const Place &place, int64_t bytes) {
    int64_t end;
    return place.isPlaced() && place.offsetBytes >= 0 && !__builtin_add_overflow(place.offsetBytes, bytes, &end);
  }
  /// An empty value is at every place.
  static bool isAt(const Value *value, Place base, int64_t offsetBytes) {
    base.offsetBytes += offsetBytes;
    return value->type().bytes() == 0 || value->place == base;
  }

  const Module &module;
  llvm::StringMap<Place> returned;
};

llvm::Error PlaceChecker::run() {
  for (const State &state : module.states)
    if (!fits(state.place, state.type.bytes()))
      return broken("V19", "state " + symbolText('@', state.name) + " has no place");
  for (const State &state : module.states)
    if ((state.place.space == Space::host) != state.onHost)
      return broken("V22", "state " + symbolText('@', state.name) + " is not in the memory that its declaration names");
  for (const Function *function : inCallOrder(module)) {
    for (const Argument &argument : function->arguments())
      if (argument.value->type().bytes() != 0 && !fits(argument.value->place, argument.value->type().bytes()))
        return broken("V19", *function, "argument '" + argument.name + "' has no place");
    for (const Argument &argument : function->arguments())
      if (argument.kind == ArgumentKind::carry)
        if (llvm::Error error = checkCarried(*function, argument))
          return error;
    for (Node *node : *function)
      if (llvm::Error error = checkNode(*node))
        return error;
    const Node *ret = function->returnNode();
    for (unsigned i = 0; i < ret->operandCount(); ++i)
      returned[ret->get<ReturnAttributes>().names[i]] = ret->operand(i)->place;
  }
  for (const CarriedOver &carried : carriedOverSteps(module))
    if (llvm::Error error = checkCarried(*carried.receiver, *carried.argument))
      return error;
  return llvm::Error::success();
}

/// A result that no function has returned yet may be from a later one, if the step passes it to the next.
llvm::Error PlaceChecker::checkCarried(const Function &function, const Argument &argument) {
  auto found = returned.find(argument.name);
  if (found == returned.end() || isAt(argument.value.get(), found->second, 0))
    return llvm::Error::success();
  return broken("V20", function,
                "the carried argument '" + argument.name + "' is not at the address of the result that it aliases");
}

llvm::Error PlaceChecker::checkNode(const Node &node) {
  if (llvm::Error error = checkPlaced(node))
    return error;
  return node.op() == Op::pack ? checkPack(node) : checkAlias(node);
}

llvm::Error PlaceChecker::checkPlaced(const Node &node) {
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    int64_t bytes = node.result(i)->type().bytes();
    if (bytes != 0 && !fits(node.result(i)->place, bytes))
      return broken("V19", node, "result " + llvm::Twine(i) + " has no place");
  }
  if (node.schedule.workspaceBytes < 0 ||
      (node.schedule.workspaceBytes > 0 && !fits(node.schedule.workspace, node.schedule.workspaceBytes)))
    return broken("V19", node, "its workspace has no place");
  return checkSpaces(node);
}

/// Only copies move data between host memory and device memory. Every other node works in one of the two.
llvm::Error PlaceChecker::checkSpaces(const Node &node) const {
  const bool namesOnly = node.op() == Op::write || node.op() == Op::free || node.op() == Op::ret;
  if (namesOnly)
    return llvm::Error::success();
  const bool reloads = node.op() == Op::reloadStart, offloads = node.op() == Op::offloadStart;
  const bool isAlias = node.op() == Op::read || node.op() == Op::wait || infoOf(node).has(aliasesOperand);
  auto isWrong = [&](const Value *value, bool onHost) {
    return value->type().bytes() != 0 && !value->type().isToken() && (value->place.space == Space::host) != onHost;
  };
  for (const Value *operand : node.operands())
    if (!isAlias && isWrong(operand, reloads || node.schedule.stream == Stream::host))
      return broken("V22", node,
                    nameIn(*node.function(), operand) +
                        " is in host memory where device memory is needed, or vice versa");
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (!isAlias && isWrong(node.result(i), offloads || node.schedule.stream == Stream::host))
      return broken("V22", node,
                    "result " + llvm::Twine(i) + " is in host memory where device memory is needed, or vice versa");
  return llvm::Error::success();
}

llvm::Error PlaceChecker::checkAlias(const Node &node) {
  if (node.op() == Op::read) {
    const State &state = *stateOf(node);
    return isAt(node.result(), state.place, 0) ? llvm::Error::success()
                                               : broken("V20", node, "a read must be at the address of its state");
  }
  if (node.op() != Op::wait && !infoOf(node).has(aliasesOperand))
    return llvm::Error::success();
  // The shape rule has checked that the view is inside its operand, so the multiplication cannot overflow.
  int64_t offset =
      node.op() == Op::view ? node.get<ViewAttributes>().offset * byteSize(node.result()->type().dtype()) : 0;
  if (isAt(node.result(), node.operand(0)->place, offset))
    return llvm::Error::success();
  return broken("V20", node, "it is not at the address of the memory that it aliases");
}

llvm::Error PlaceChecker::checkPack(const Node &node) {
  const Shape &offsets = node.get<PackAttributes>().offsets;
  int64_t width = byteSize(node.result()->type().dtype());
  for (unsigned i = 0; i < node.operandCount(); ++i)
    if (!isAt(node.operand(i), node.result()->place, offsets[i] * width))
      return broken("V20", node, nameIn(*node.function(), node.operand(i)) + " is not in its part of the pack");
  return llvm::Error::success();
}

} // namespace

llvm::Error checkLifetimes(const Module &module) {
  if (module.stage < Stage::sharded)
    return llvm::Error::success();
  LastReceivers lastReceivers;
  for (const Function *function : inCallOrder(module))
    for (const Argument &argument : function->arguments())
      if (argument.kind == ArgumentKind::carry)
        lastReceivers[argument.name] = function->kind();

  CarriedGathers carriedGathers;
  for (const CarriedOver &carried : carriedOverSteps(module))
    carriedGathers.insert(carried.argument->value.get());

  std::vector<Buffers> functions;
  RequiredFrees required = {module.stage == Stage::planned, module.stage == Stage::planned};
  for (const std::unique_ptr<Function> &function : module.functions) {
    if (llvm::Error error = functions.emplace_back(*function, carriedGathers).walk(lastReceivers))
      return error;
    RequiredFrees found = functions.back().found();
    required.gathered |= found.gathered;
    required.others |= found.others && module.stage >= Stage::async;
  }
  for (const Buffers &buffers : functions)
    if (llvm::Error error = buffers.checkComplete(lastReceivers, required))
      return error;
  return module.stage < Stage::async ? llvm::Error::success() : checkFutures(module);
}

llvm::Error checkPlaces(const Module &module) {
  return module.stage < Stage::planned ? llvm::Error::success() : PlaceChecker(module).run();
}

llvm::Error checkEvents(const Module &module) {
  llvm::DenseMap<int32_t, const Node *> recorders, waiters;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Node *node : *function) {
      const bool starts = infoOf(*node).has(startsTransfer);
      if ((starts && node->schedule.records >= 0) || (!starts && node->schedule.awaits >= 0))
        return broken("V21", *node, "compute nodes record events and starts await them");
      if (node->schedule.implied && node->op() != Op::wait)
        return broken("V21", *node, "only a wait can be implied by another");
      if (node->schedule.records >= 0 && !recorders.try_emplace(node->schedule.records, node).second)
        return broken("V21", *node, "event " + llvm::Twine(node->schedule.records) + " is recorded twice");
      if (node->schedule.awaits >= 0)
        waiters.try_emplace(node->schedule.awaits, node);
    }
  for (const auto &[event, waiter] : waiters)
    if (!recorders.contains(event))
      return broken("V21", *waiter, "nothing records event " + llvm::Twine(event));
  for (const auto &[event, recorder] : recorders)
    if (!waiters.contains(event))
      return broken("V21", *recorder, "nothing awaits event " + llvm::Twine(event));
  return llvm::Error::success();
}

} // namespace fsdpc::rules
