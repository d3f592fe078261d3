// Decides when collectives run, within the bound on gathered units. Only moves nodes: starts up, waits of reductions
// down.
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/passes.h"
#include "passes/schedule/collective_ids.h"
#include "passes/shard/placement.h"

namespace fsdpc {

namespace {

/// One gathered buffer of a function, in order of use.
struct Gather {
  Node *start = nullptr;
  Node *wait = nullptr;
  Node *free = nullptr;
  bool isHeld = false; ///< counts towards the bound: it lives for a single use
};

class CommScheduler {
public:
  explicit CommScheduler(Function &function) : function(function), module(*function.module()) {}

  void run() {
    collect();
    for (size_t i = 1; i < gathers.size(); ++i)
      prefetch(i);
    delayReplicas();
    delayReductionWaits();
    delayScalarWaits();
    advanceAccumulated();
  }

private:
  void collect() {
    for (Node *node : function) {
      if (node->op() != Op::allGatherStart)
        continue;
      Gather gather{node, waitOf(*node)};
      for (Use *use = gather.wait->result()->uses(); use; use = use->next())
        if (use->user()->op() == Op::free)
          gather.free = use->user();
      gather.isHeld = gather.free && !isOfRows(*gather.wait) &&
                      (node->unit < 0 || placementOf(unitOf(*node)).copy == UnshardedCopy::perUse);
      gathers.push_back(gather);
    }
  }

  const Unit &unitOf(const Node &node) const { return module.units[node.unit]; }

  /// True for the indices and rows that ranks exchange for a row table: they are small beside a unit.
  static bool isOfRows(const Node &wait) {
    for (const Use *use = wait.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::gatherRows || use->user()->op() == Op::scatterRows)
        return true;
    return false;
  }

  int64_t allowed() const { return std::max<int64_t>(module.decisions.maxInflightAllGathers, 1); }

  /// Starts gather i as soon as the gather that the bound places before it has arrived. If too many units would be
  /// live, starts it after the free that makes space.
  void prefetch(size_t i) {
    size_t depth = std::max<int64_t>(allowed() - 1, 1);
    const Gather &before = gathers[i - std::min(depth, i)];
    Gather &gather = gathers[i];
    Phase phase = gather.wait->section.phase;
    bool backward = phase == Phase::backward || phase == Phase::recompute;
    BackwardPrefetch mode = module.backwardPrefetch(gather.start->unit);
    if (backward ? mode == BackwardPrefetch::none : !module.prefetchesForward(gather.start->unit))
      return;
    Node *position = depth <= i ? before.wait : before.start;
    if (backward && mode == BackwardPrefetch::post && before.free && before.free->isBefore(gather.start))
      position = before.free->previous();
    position = latest(position, gathers[i - 1].start);
    position = latest(position, operandOf(gather));
    position = latest(position, roomFor(i, position));
    if (position && position->isBefore(gather.start))
      moveStart(gather, position);
  }

  /// The node that a gather cannot move before. A read of a state moves with it.
  static Node *operandOf(const Gather &gather) {
    Node *definer = gather.start->operand(0)->definer();
    return definer && definer->op() != Op::read ? definer : gather.start->function()->front();
  }

  /// The free after which gather i stays within the bound; `position` itself if it already does. Gathers are freed
  /// roughly in order, so a short look-back is enough. Null: never within the bound before its own use.
  Node *roomFor(size_t i, Node *position) {
    if (!gathers[i].isHeld)
      return position;
    llvm::SmallVector<Node *, 8> frees;
    int64_t held = 0;
    for (size_t j = i; j-- > 0 && i - j <= lookBack;) {
      Node *free = gathers[j].free;
      if (!gathers[j].isHeld || free->isBefore(position))
        continue;
      ++held;
      frees.push_back(free);
    }
    if (held < allowed())
      return position;
    llvm::sort(frees, [](Node *a, Node *b) { return a->isBefore(b); });
    return frees[held - allowed()];
  }

  static Node *latest(Node *a, Node *b) { return !a || !b ? nullptr : a->isBefore(b) ? b : a; }

  /// The start reads the shard's current version; its read moves with it.
  void moveStart(Gather &gather, Node *position) {
    Node *read = gather.start->operand(0)->definer();
    gather.start->moveAfter(position);
    gather.start->section = position->section;
    if (read && read->op() == Op::read && !read->isBefore(gather.start)) {
      read->moveBefore(gather.start);
      read->section = gather.start->section;
    }
  }

  /// Replicas are refreshed after the other updates: no node reads them before the next step.
  void delayReplicas() {
    for (const Gather &gather : gathers) {
      Use *use = gather.wait->result()->uses();
      if (!use || use->next() || use->user()->op() != Op::write)
        continue;
      Node *write = use->user();
      gather.wait->moveBefore(function.returnNode());
      write->moveBefore(function.returnNode());
    }
  }

  /// True for the first collective of a pack's sum over ranks: reduce_scatter, or all_reduce where the segment is
  /// unsharded on every rank.
  static bool beginsReduction(const Node &node) {
    const Node *operand = startsCollective(node) ? node.operand(0)->definer() : nullptr;
    return operand && operand->op() == Op::pack;
  }

  /// The all_reduce over replicas that follows a reduce_scatter; null if there is none.
  static Node *continuationOf(const Node &wait) {
    for (Use *use = wait.result()->uses(); use; use = use->next())
      if (use->user()->op() == Op::allReduceStart)
        return use->user();
    return nullptr;
  }

  /// A reduction is waited for when the next one starts, since otherwise a third buffer would be needed. Its
  /// continuation over the replicas starts there, and is waited for one reduction later.
  void delayReductionWaits() {
    std::vector<Node *> pending;
    for (Node *node : function) {
      if (node->op() == Op::ret)
        while (!pending.empty())
          pending = finish(pending, *node);
      if (!beginsReduction(*node))
        continue;
      pending = finish(pending, *node);
      pending.push_back(node);
    }
  }

  /// Waits before `position`. Returns the continuations.
  std::vector<Node *> finish(llvm::ArrayRef<Node *> starts, Node &position) {
    std::vector<Node *> continued;
    for (Node *start : starts) {
      Node *wait = waitOf(*start), *next = continuationOf(*wait);
      if (!next) {
        moveWait(*wait, position);
        continue;
      }
      Node *place = firstUseOr(*waitOf(*next), position);
      for (Node *node : {wait, next, waitOf(*next)}) {
        node->moveBefore(place);
        node->section = place->op() == Op::ret ? start->section : place->section;
      }
      continued.push_back(next);
    }
    return continued;
  }

  /// True if the node sums an accumulator of the micro-steps over ranks.
  bool sumsAccumulator(const Node &node) const {
    bool reduces = node.op() == Op::reduceScatterStart || node.op() == Op::allReduceStart;
    const State *state = reduces ? stateReadBy(*node.operand(0)) : nullptr;
    return state && state->role == StateRole::accumulator;
  }

  /// Reduces the next segment's accumulator while this one's is used.
  void advanceAccumulated() {
    Node *before = nullptr;
    for (Node *node : function) {
      if (!sumsAccumulator(*node))
        continue;
      if (Node *read = node->operand(0)->definer(); before) {
        read->moveBefore(waitOf(*before));
        node->moveAfter(read);
        read->section = node->section = waitOf(*before)->section;
      }
      before = node;
    }
  }

  void delayScalarWaits() {
    Node *ret = function.returnNode();
    for (Node *node : function)
      if (node->op() == Op::allReduceStart && node->result()->type().delivered().isScalar())
        moveWait(*waitOf(*node), *ret);
  }

  static Node *firstUseOr(const Node &wait, Node &before) {
    Node *position = &before;
    for (Use *use = wait.result()->uses(); use; use = use->next())
      if (use->user()->isBefore(position))
        position = use->user();
    return position;
  }

  /// Moves the wait to `before`, or right before the first use of the result if that is earlier.
  static void moveWait(Node &wait, Node &before) {
    Node *position = firstUseOr(wait, before);
    if (position == wait.next())
      return;
    wait.moveBefore(position);
    wait.section = position->section;
    if (position->op() == Op::ret && wait.previous())
      wait.section = wait.previous()->section;
  }

  static constexpr size_t lookBack = 64;
  Function &function;
  const Module &module;
  std::vector<Gather> gathers;
};

llvm::Error run(Module &module, const PassContext &) {
  if (!module.decisions.overlapComm)
    return llvm::Error::success();
  for (const std::unique_ptr<Function> &function : module.functions)
    CommScheduler(*function).run();
  numberCollectives(module);
  return llvm::Error::success();
}

} // namespace

const Pass scheduleComm = {"schedule_comm", Stage::async, Stage::async, true, run};

} // namespace fsdpc
