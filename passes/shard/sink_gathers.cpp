// sink_gathers: decides when each segment is unsharded and when it is freed.
//
// The problem. shard_state replaces each read of a sharded parameter by a read, an all_gather and a view, and inserts
// no free. So a segment is gathered once for each of its parameters. Backward reads the views that forward created, so
// every segment that backward reads stays unsharded to the end of forward. full_shard wants each segment unsharded only
// while its unit computes.
//
// The idea. No function both gathers a state for use and writes it. Only `update` writes segments and replicas, and it
// gathers only to write replicas; those gathers stay. So every other gather can be at any position in its function. The
// pass groups the uses of a segment by region (unitRegions: consecutive nodes of one section; a recompute section and
// the backward after it count as one) and looks through views and reshapes. Each group gets its own read, all_gather
// and views before its first use and one free after its last use. The old gathers are erased. Where a unit stays
// unsharded from forward to backward (UnshardedCopy::forwardToBackward), each segment has one group per function. Then
// keepAcrossBoundaries joins two gathers of one segment if no other gather is between them. From forward to backward it
// does so only where the unit leaves reshard_after_forward at its default. With reshard_after_forward(k),
// reshardToSmallerGroups keeps this rank's part of the segment within a group of k ranks after forward, and backward
// gathers those parts.
//
// Example: micro_step of tests/passes/sink_gathers.fsir, shortened, with @u for @second and %f for %second.p.full.
//
//   before                                                     after
//   unit @u forward {                                          unit @u forward {
//     %u.p = read @u.p : f32[64]                                 %u.p = read @u.p : f32[64]
//     %f = all_gather %u.p over(@shard) ranks(2) : f32[128]      %f = all_gather %u.p over(@shard) ranks(2) : f32[128]
//     %w = view %f : f32[7,7]                                    %w = view %f : f32[7,7]
//     %2 = matmul %1, %w : f32[6,7]                              %h = view %f offset(64) : f32[7,3]
//     %u.p.1 = read @u.p : f32[64]                               %2 = matmul %1, %w : f32[6,7]
//     %f.1 = all_gather %u.p.1 over(@shard) ranks(2) : f32[128]  %5 = matmul %1, %h : f32[6,3]
//     %h = view %f.1 offset(64) : f32[7,3]                       free %f
//     %5 = matmul %1, %h : f32[6,3]                            }
//   }
//
// @third forward reads a parameter of @second too. No other gather is between it and the backward of @second, so the
// gather in @third forward serves both and is freed after its last use in backward.
//
// What is checked. After every pass verify() rejects a use after free and a double free (V15). If one gathered buffer
// is freed, it also rejects a gathered buffer that is not freed (V16). A compile from the train stage or earlier ends
// in checkAgainstTrain (passes/check), which derives from the planned module which parameter each view of a gather
// reads. Nothing proves that a lifetime is as short as possible. Tests check it for examples: sink_gathers.fsir,
// sink_gathers_lifetimes.fsir and reused_layer.fsir in tests/passes, and HoldsAtMostTwoGatheredUnits in
// tests/unit/pipeline_test.cpp.
//
// Cost: O(n + u (d + log g)), with n nodes, u uses of gathered buffers in g groups, and chains of at most d views and
// reshapes. Uses are found through the use list of their gather. Their order is a comparison of numbers
// (Node::isBefore), since no node moves while uses are collected.
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/passes.h"
#include "passes/shard/placement.h"
#include "passes/support/clone.h"
#include "passes/support/section_regions.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc {

namespace {

/// All uses of one segment within one region.
struct Site {
  Node *firstUser = nullptr;
  Node *lastUser = nullptr;
  llvm::SmallVector<Use *, 8> uses; ///< of views of the gathered buffer
};

class GatherSinker {
public:
  explicit GatherSinker(Function &function) : function(function), regionOf(unitRegions(function)) {}

  void run() {
    for (const Unit &unit : function.module()->units)
      unitByName[unit.name] = &unit;
    for (Node *node : function)
      if (node->op() == Op::allGather && isForHere(*node))
        collect(*node);
    for (auto &[key, site] : sites)
      materialize(key.first, site);
    for (Node *node : obsolete)
      eraseTree(*node);
    keepAcrossBoundaries();
    if (function.kind() == FunctionKind::microStep)
      reshardToSmallerGroups();
  }

private:
  /// False for a gather that refreshes a replica: it stays where it is.
  static bool isForHere(const Node &gather) {
    for (Use *use = gather.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::write)
        return false;
    return true;
  }

  static Node *readOf(const Value &shard) {
    return shard.definer() && shard.definer()->op() == Op::read ? shard.definer() : nullptr;
  }

  /// The gathered object (a state, whichever read it is from, a carried gradient, or the ids of a lookup) and the ranks
  /// that it is gathered from: tables of several units may be looked up by the same ids.
  using Key = std::pair<const void *, const MeshAxis *>;

  static Key keyOf(const Node &gather) {
    const Value *shard = gather.operand(0);
    const State *state = stateReadBy(*shard);
    const MeshAxis *axis = gather.function()->module()->axis(gather.get<CollectiveAttributes>().over.name);
    return {state ? static_cast<const void *>(state) : shard, axis};
  }

  void collect(Node &gather) {
    obsolete.push_back(&gather);
    const Key key = keyOf(gather);
    sources[key] = &gather;
    // Each site gets its own views and reshapes.
    llvm::SmallVector<Value *, 8> aliases = {gather.result()};
    while (!aliases.empty())
      for (Use *use = aliases.pop_back_val()->uses(); use; use = use->next()) {
        if (infoOf(*use->user()).has(aliasesOperand))
          aliases.push_back(use->user()->result());
        else
          add(key, use);
      }
  }

  /// The unit whose segment is gathered; null for gradients.
  const Unit *unitOf(const Node &gather) const {
    const State *state = stateReadBy(*gather.operand(0));
    return !state || state->role == StateRole::accumulator ? nullptr : unitByName.lookup(state->unit);
  }

  bool livesToBackward(const Node &gather) const {
    const Unit *unit = unitOf(gather);
    return unit && placementOf(*unit).copy == UnshardedCopy::forwardToBackward;
  }

  void add(Key key, Use *use) {
    Node *user = use->user();
    Site &site = sites[{key, livesToBackward(*sources.lookup(key)) ? 0 : regionOf.lookup(user)}];
    site.uses.push_back(use);
    if (!site.firstUser || user->isBefore(site.firstUser))
      site.firstUser = user;
    if (!site.lastUser || site.lastUser->isBefore(user))
      site.lastUser = user;
  }

  void materialize(Key key, Site &site) {
    Node &source = *sources.lookup(key);
    Builder builder(function, site.firstUser);
    builder.inherit(*site.firstUser);
    builder.setSource("");
    Value *shard = source.operand(0);
    if (Node *read = readOf(*shard))
      shard = builder.clone(*read, {})->result();
    Node *gather = builder.create(Op::allGather, {shard}, source.get<CollectiveAttributes>());
    gather->unit = source.unit;
    if (const State *state = stateReadBy(*shard))
      shard->setName(state->name);
    if (Node *read = readOf(*shard)) {
      read->unit = source.unit;
      read->section = site.firstUser->section;
    }
    gather->result()->setName(source.result()->name());
    ValueMap rebuilt = {{source.result(), gather->result()}};
    for (Use *use : site.uses)
      use->user()->setOperand(use->index(), rebuild(builder, use->value(), *gather, rebuilt));
    builder.setInsertionPointAfter(site.lastUser);
    builder.create(Op::free, {gather->result()})->section = site.lastUser->section;
  }

  /// Rebuilds the chain of views and reshapes that leads to `value` on top of another gather.
  Value *rebuild(Builder &builder, Value *value, Node &gather, ValueMap &rebuilt) {
    llvm::SmallVector<Node *, 4> chain;
    for (; value->definer()->op() != Op::allGather; value = value->definer()->operand(0))
      chain.push_back(value->definer());
    Value *base = gather.result();
    for (Node *node : llvm::reverse(chain)) {
      Value *&copy = rebuilt[node->result()];
      if (!copy) {
        copy = builder.clone(*node, {base})->result();
        copy->definer()->section = gather.section;
      }
      base = copy;
    }
    return base;
  }

  void eraseTree(Node &gather) {
    // Aliases use each other, and a node with uses cannot be erased. So all of them drop their operands first.
    llvm::SmallVector<Node *, 8> aliases;
    llvm::SmallVector<Value *, 8> pending = {gather.result()};
    while (!pending.empty())
      for (Use *use = pending.pop_back_val()->uses(); use; use = use->next()) {
        aliases.push_back(use->user());
        pending.push_back(use->user()->result());
      }
    for (Node *alias : aliases)
      alias->dropOperands();
    for (Node *alias : aliases)
      alias->erase();
    Node *read = readOf(*gather.operand(0));
    gather.erase();
    if (read && !read->result()->hasUses())
      read->erase();
  }

  /// Applies mostly to the last unit of forward, which is the first of backward.
  void keepAcrossBoundaries() {
    Node *lastFree = nullptr;
    Node *lastGather = nullptr;
    for (Node *node : function) {
      if (node->op() == Op::allGather) {
        bool same = lastFree && lastGather && lastFree->operand(0) == lastGather->result() &&
                    keyOf(*lastGather) == keyOf(*node) && mayStay(*lastFree, *node);
        if (same) {
          lastFree->erase();
          node->result()->replaceAllUsesWith(lastGather->result());
          Node *read = readOf(*node->operand(0));
          node->erase();
          if (read && !read->result()->hasUses())
            read->erase();
          lastFree = nullptr;
          continue;
        }
        lastGather = node;
        lastFree = nullptr;
      } else if (node->op() == Op::free && lastGather && node->operand(0) == lastGather->result()) {
        lastFree = node;
      }
    }
  }

  /// From forward to backward, a segment that is used next is kept only with the default setting.
  bool mayStay(const Node &free, const Node &gather) const {
    const Unit *unit = unitOf(gather);
    bool turns = free.section.phase == Phase::forward && gather.section.phase != Phase::forward;
    return !turns || !unit || unit->choices.reshardAfterForward == ReshardAfterForward();
  }

  /// For units with a reshard group.
  void reshardToSmallerGroups() {
    llvm::DenseMap<const State *, Node *> kept; ///< segment -> the free after its last use in forward
    for (Node *node : function) {
      if (node->op() != Op::allGather)
        continue;
      const Unit *unit = unitOf(*node);
      std::string axis = unit ? axisOfReshard(*function.module(), *unit) : "";
      if (axis.empty())
        continue;
      const State *segment = stateReadBy(*node->operand(0));
      if (node->section.phase == Phase::forward)
        kept[segment] = freeOf(*node);
      else if (Node *free = kept.lookup(segment))
        gatherPart(*node, partOf(*free, segment->name, axis));
    }
  }

  static Node *freeOf(const Node &gather) {
    for (Use *use = gather.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::free)
        return use->user();
    return nullptr;
  }

  Node *partOf(Node &free, llvm::StringRef segment, const std::string &axis) {
    Node *&part = parts[&free];
    if (!part) {
      Builder builder(function, &free);
      builder.inherit(free);
      part = builder.create(Op::takeShard, {free.operand(0)}, overAxis(*function.module(), axis));
      part->result()->setName((segment + ".part").str());
    }
    return part;
  }

  void gatherPart(Node &gather, Node *part) {
    Node *read = gather.operand(0)->definer();
    gather.setOperand(0, part->result());
    gather.get<CollectiveAttributes>() = part->get<CollectiveAttributes>();
    if (!read->result()->hasUses())
      read->erase();
  }

  Function &function;
  llvm::DenseMap<Node *, Node *> parts; ///< free -> the take_shard before it
  llvm::DenseMap<const Node *, size_t> regionOf;
  llvm::StringMap<const Unit *> unitByName;
  llvm::DenseMap<Key, Node *> sources;
  llvm::MapVector<std::pair<Key, size_t>, Site> sites; ///< by gathered object and the region that reads it
  std::vector<Node *> obsolete;
};

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    GatherSinker(*function).run();
  return llvm::Error::success();
}

} // namespace

const Pass sinkGathers = {"sink_gathers", Stage::sharded, Stage::sharded, true, run};

} // namespace fsdpc
