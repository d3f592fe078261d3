#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/shard/placement.h"
#include "passes/support/clone.h"
#include "passes/support/section_runs.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc {

namespace {

/// All uses of one segment within one run (unitRuns of support/section_runs.h).
struct Site {
  Node *firstUser = nullptr;
  Node *lastUser = nullptr;
  llvm::SmallVector<Use *, 8> uses; ///< of views of the gathered buffer
};

class GatherSinker {
public:
  explicit GatherSinker(Function &function) : function(function), runOf(unitRuns(function)) {}

  void run() {
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
  /// What refreshes a replica is gathered where it stands, and stays.
  static bool isForHere(const Node &gather) {
    for (Use *use = gather.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::write)
        return false;
    return true;
  }

  static Node *readOf(const Value &shard) {
    return shard.definer() && shard.definer()->op() == Op::read ? shard.definer() : nullptr;
  }

  /// The gather's operand identifies what is gathered: a state, or a carried gradient shard.
  std::string keyOf(const Node &gather) {
    Value *shard = gather.operand(0);
    if (Node *read = shard->definer(); read && read->op() == Op::read)
      return read->get<StateAttributes>().state.name;
    return shard->name().str();
  }

  void collect(Node &gather) {
    obsolete.push_back(&gather);
    std::string key = keyOf(gather);
    sources[key] = &gather;
    // Reshapes of a view are looked through: each site gets its own.
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
    const Node *read = gather.operand(0)->definer();
    if (!read || read->op() != Op::read)
      return nullptr;
    const Module &module = *function.module();
    const State &state = *module.state(read->get<StateAttributes>().state.name);
    return state.role == StateRole::accumulator ? nullptr : &module.units[module.unitIndex(state.unit)];
  }

  bool livesToBackward(const Node &gather) const {
    const Unit *unit = unitOf(gather);
    return unit && placementOf(*unit).copy == WholeCopy::forwardToBackward;
  }

  void add(const std::string &key, Use *use) {
    Node *user = use->user();
    Site &site = sites[{key, livesToBackward(*sources.lookup(key)) ? 0 : runOf.lookup(user)}];
    site.uses.push_back(use);
    if (!site.firstUser || user->isBefore(site.firstUser))
      site.firstUser = user;
    if (!site.lastUser || site.lastUser->isBefore(user))
      site.lastUser = user;
  }

  void materialize(const std::string &key, Site &site) {
    Node &source = *sources.lookup(key);
    Builder builder(function, site.firstUser);
    builder.inherit(*site.firstUser);
    builder.setSource("");
    Value *shard = source.operand(0);
    if (Node *read = readOf(*shard))
      shard = builder.clone(*read, {})->result();
    Node *gather = builder.create(Op::allGather, {shard}, source.get<CollectiveAttributes>());
    gather->unit = source.unit;
    shard->setName(key);
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

  /// The chain of views and reshapes that leads to `value`, over another gather.
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
    // Aliases of aliases come later in the list: collect in order, erase from the back.
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
    Node *read = gather.operand(0)->definer();
    gather.erase();
    if (read && !read->result()->hasUses())
      read->erase();
  }

  /// A segment freed and gathered again with no other gather between is simply kept: the last unit of forward is the
  /// first of backward.
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
          Node *read = node->operand(0)->definer();
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

  /// Between forward and backward only the default keeps what is used next.
  bool mayStay(const Node &free, const Node &gather) const {
    const Unit *unit = unitOf(gather);
    bool turns = free.section.phase == Phase::forward && gather.section.phase != Phase::forward;
    return !turns || !unit || unit->choices.reshardAfterForward == ReshardAfterForward();
  }

  /// Units with a reshard group keep this rank's part of it when forward frees them; backward gathers those parts.
  void reshardToSmallerGroups() {
    llvm::StringMap<Node *> kept; ///< segment -> take_shard behind its last use in forward
    for (Node *node : function) {
      if (node->op() != Op::allGather)
        continue;
      const Unit *unit = unitOf(*node);
      std::string axis = unit ? axisOfReshard(*function.module(), *unit) : "";
      if (axis.empty())
        continue;
      std::string key = keyOf(*node);
      if (node->section.phase == Phase::forward)
        kept[key] = freeOf(*node);
      else if (Node *free = kept.lookup(key))
        gatherPart(*node, partOf(*free, key, axis));
    }
  }

  static Node *freeOf(const Node &gather) {
    for (Use *use = gather.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::free)
        return use->user();
    return nullptr;
  }

  Node *partOf(Node &free, const std::string &key, const std::string &axis) {
    Node *&part = parts[&free];
    if (!part) {
      Builder builder(function, &free);
      builder.inherit(free);
      part = builder.create(Op::takeShard, {free.operand(0)}, overAxis(*function.module(), axis));
      part->result()->setName(key + ".part");
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
  llvm::DenseMap<const Node *, size_t> runOf;
  llvm::StringMap<Node *> sources;
  llvm::MapVector<std::pair<std::string, size_t>, Site, std::map<std::pair<std::string, size_t>, unsigned>> sites;
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
