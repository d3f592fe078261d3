// Inserts copies between the device and its host, each waited for where it starts. The copies are around accesses to
// states in host memory, and around the time between forward and backward.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/analysis/buffers.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/section_regions.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc {

namespace {

bool isAlias(const Node &node) { return node.op() == Op::wait || infoOf(node).has(aliasesOperand); }

/// The started copy and its wait, at the builder's position.
Value *copyAcross(Builder &builder, Op start, Value *value, llvm::StringRef suffix) {
  Node *started = builder.create(start, {value});
  started->schedule.stream = Stream::copy;
  Node *wait = builder.create(Op::wait, {started->result()});
  wait->schedule.stream = Stream::compute;
  if (!value->name().empty()) {
    wait->result()->setName((value->name() + suffix).str());
    started->result()->setName((value->name() + suffix + ".future").str());
  }
  return wait->result();
}

Value *offload(Builder &builder, Value *value) { return copyAcross(builder, Op::offloadStart, value, ".host"); }
Value *reload(Builder &builder, Value *value) { return copyAcross(builder, Op::reloadStart, value, ".device"); }

/// Gives every node its operands on its own side.
class BorderCrosser {
public:
  explicit BorderCrosser(Function &function) : function(function) {}

  void run() {
    for (Node *node : function) {
      if (node->op() == Op::read || isAlias(*node))
        follow(*node);
      else if (node->op() == Op::write)
        cross(*node, 0, stateOf(*node)->onHost);
      else if (updatesOnHost(*node))
        computeOnHost(*node);
      else if (node->op() != Op::free)
        for (unsigned i = 0; i < node->operandCount(); ++i)
          cross(*node, i, false);
    }
  }

private:
  void follow(Node &node) {
    const bool isHost = node.op() == Op::read ? stateOf(node)->onHost : onHost.contains(node.operand(0));
    if (!isHost)
      return;
    onHost.insert(node.result());
    if (node.op() == Op::read)
      reloadForViews(node);
  }

  /// Parameters that are not gathered: one copy of the segment for all its reads in this section.
  void reloadForViews(Node &read) {
    llvm::SmallVector<Use *, 8> views;
    for (Use *use = read.result()->uses(); use; use = use->next())
      if (isAlias(*use->user()))
        views.push_back(use);
    if (views.empty())
      return;
    Builder builder(function);
    builder.inherit(read);
    builder.setSource("");
    builder.setInsertionPointAfter(&read);
    Value *copy = reload(builder, read.result());
    for (Use *use : views)
      use->user()->setOperand(use->index(), copy);
  }

  bool updatesOnHost(const Node &node) const { return infoOf(node).has(inPlace) && onHost.contains(node.operand(0)); }

  void computeOnHost(Node &node) {
    node.schedule.stream = Stream::host;
    for (unsigned i = 0; i < node.operandCount(); ++i)
      cross(node, i, true);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      onHost.insert(node.result(i));
  }

  void cross(Node &node, unsigned i, bool toHost) {
    Value *value = node.operand(i);
    if (onHost.contains(value) == toHost)
      return;
    node.setOperand(i, toHost ? hostCopyOf(value, node) : deviceCopyOf(value, node));
  }

  /// Copies the value where it is computed, so that the device need not keep it: for gradients, optimizers on the host
  /// come last.
  Value *hostCopyOf(Value *value, Node &user) {
    Value *&copy = hostCopies[value];
    if (copy)
      return copy;
    Node *definer = value->definer();
    Builder builder(function, &user);
    builder.inherit(user);
    if (definer && definer->op() != Op::read) {
      builder.setInsertionPointAfter(definer);
      builder.setSection(definer->section);
      builder.setUnit(user.unit);
    }
    builder.setSource("");
    copy = offload(builder, value);
    onHost.insert(copy);
    return copy;
  }

  Value *deviceCopyOf(Value *value, Node &user) {
    Builder builder(function, &user);
    builder.inherit(user);
    builder.setSource("");
    return reload(builder, value);
  }

  Function &function;
  llvm::DenseSet<const Value *> onHost;
  llvm::DenseMap<Value *, Value *> hostCopies;
};

/// Values that forward leaves for backward are copied to the host after their last reader in forward, and back before
/// their first reader in backward.
class ActivationOffloader {
public:
  ActivationOffloader(Function &step, double share)
      : step(step), share(share), buffers(step), regionOf(unitRegions(step)) {}

  void run() {
    collect();
    candidates.remove_if([&](const auto &entry) { return !isWorthIt(*entry.first, entry.second); });
    int64_t total = 0, taken = 0;
    for (const auto &[root, saved] : candidates)
      total += !choiceOf(*root, saved) ? root->type().bytes() : 0;
    for (auto &[root, saved] : candidates) {
      const std::optional<bool> choice = choiceOf(*root, saved);
      if (choice == false || (!choice && static_cast<double>(taken) >= share * static_cast<double>(total)))
        continue;
      taken += choice ? 0 : root->type().bytes();
      move(*root, saved);
    }
  }

private:
  /// A buffer that forward computes.
  struct Saved {
    Node *lastInForward = nullptr;
    Node *firstInBackward = nullptr;
    bool isElsewhere = false;             ///< it is returned, in a pack, or freed by name
    llvm::SmallVector<Use *, 4> backward; ///< uses of it, under any name from forward
  };

  /// The setting of the unit that computes it, or of the unit whose backward first reads it: on, off, or unspecified.
  std::optional<bool> choiceOf(const Value &root, const Saved &saved) const {
    const std::vector<Unit> &units = step.module()->units;
    auto choice = [&](const Node &node) {
      return node.section.unit < 0 ? std::nullopt : units[node.section.unit].choices.offloadActivations;
    };
    return choice(*saved.firstInBackward) == true ? true : choice(*root.definer());
  }

  static bool isBackward(const Node &node) {
    return node.section.phase == Phase::backward || node.section.phase == Phase::recompute;
  }

  void collect() {
    for (Node *node : step) {
      if (node->section.phase != Phase::forward || node->schedule.stream != Stream::compute)
        continue;
      for (unsigned i = 0; i < node->resultCount(); ++i)
        if (Value *root = rootOf(*node->result(i)))
          add(*node, *node->result(i), candidates[root]);
    }
  }

  /// Null for the memory of a state, for results of collectives, and for parts of a larger buffer.
  Value *rootOf(Value &value) const {
    Value *root = buffers.bufferOf(&value).root;
    const Node *definer = root->definer();
    bool isOwn = value.type().isTensor() && definer && definer->section.phase == Phase::forward &&
                 root->type().isTensor() && definer->op() != Op::constant && definer->op() != Op::pack &&
                 buffers.stateOf(root).empty();
    return isOwn ? root : nullptr;
  }

  static void add(Node &definer, Value &value, Saved &saved) {
    saved.lastInForward = laterOf(saved.lastInForward, &definer);
    for (Use *use = value.uses(); use; use = use->next()) {
      Node *user = use->user();
      if (user->op() == Op::ret || user->op() == Op::free || user->op() == Op::pack) {
        saved.isElsewhere = true;
      } else if (isBackward(*user)) {
        saved.backward.push_back(use);
        if (!saved.firstInBackward || user->isBefore(saved.firstInBackward))
          saved.firstInBackward = user;
      } else {
        saved.lastInForward = laterOf(saved.lastInForward, user);
      }
    }
  }

  /// Both copies need time in which no node needs the value. Small values are not worth the calls.
  bool isWorthIt(const Value &root, const Saved &saved) const {
    constexpr int64_t minBytes = 1024;
    constexpr size_t minRegions = 3;
    return saved.firstInBackward && !saved.isElsewhere && root.type().bytes() >= minBytes &&
           regionOf.lookup(saved.firstInBackward) >= regionOf.lookup(saved.lastInForward) + minRegions;
  }

  void move(Value &root, Saved &saved) {
    Builder builder(step);
    builder.inherit(*saved.lastInForward);
    builder.setSource("");
    builder.setInsertionPointAfter(saved.lastInForward);
    Value *away = offload(builder, &root);
    Builder back(step, saved.firstInBackward);
    back.inherit(*saved.firstInBackward);
    back.setSource("");
    ValueMap again;
    again[&root] = reload(back, away);
    for (Use *use : saved.backward)
      use->user()->setOperand(use->index(), named(back, *use->value(), again));
  }

  /// The same alias of the reloaded buffer.
  static Value *named(Builder &builder, Value &value, ValueMap &again) {
    llvm::SmallVector<Value *, 4> chain;
    Value *known = &value;
    for (; !again.count(known); known = known->definer()->operand(0))
      chain.push_back(known);
    Value *result = again.lookup(known);
    for (Value *alias : llvm::reverse(chain)) {
      Node *copy = builder.clone(*alias->definer(), {result});
      copy->section = builder.section();
      again[alias] = result = copy->result();
    }
    return result;
  }

  Function &step;
  const double share;
  const BufferAnalysis buffers;
  const llvm::DenseMap<const Node *, size_t> regionOf;
  llvm::MapVector<Value *, Saved> candidates; ///< by root, in program order
};

bool offloadsActivations(const Module &module) {
  return module.decisions.offloadActivations > 0 ||
         llvm::any_of(module.units, [](const Unit &unit) { return unit.choices.offloadActivations == true; });
}

llvm::Error run(Module &module, const PassContext &) {
  if (Function *step = module.function(FunctionKind::microStep); step && offloadsActivations(module))
    ActivationOffloader(*step, module.decisions.offloadActivations).run();
  if (llvm::any_of(module.states, [](const State &state) { return state.onHost; }))
    for (const std::unique_ptr<Function> &function : module.functions)
      BorderCrosser(*function).run();
  return llvm::Error::success();
}

} // namespace

const Pass insertOffload = {"insert_offload", Stage::async, Stage::async, false, run};

} // namespace fsdpc
