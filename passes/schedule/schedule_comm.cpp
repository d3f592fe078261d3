// Decides when collectives run, within the bound on gathered units. It only moves nodes: starts up, waits of reductions
// down.
#include "ir/ops/attributes.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

/// One gathered buffer of a function, in order of use.
struct Gather {
  Node *start = nullptr;
  Node *wait = nullptr;
  Node *free = nullptr;
};

class CommScheduler {
public:
  CommScheduler(Function &function, const Decisions &decisions) : function(function), decisions(decisions) {}

  void run() {
    collect();
    for (size_t i = 1; i < gathers.size(); ++i)
      prefetch(i);
    delayReductionWaits();
    delayScalarWaits();
    numberInOrder();
  }

private:
  void collect() {
    for (Node *node : function) {
      if (node->op() == Op::allGatherStart) {
        Gather gather{node, waitOf(*node), nullptr};
        for (Use *use = gather.wait->result()->uses(); use; use = use->next())
          if (use->user()->op() == Op::free)
            gather.free = use->user();
        gathers.push_back(gather);
      }
    }
  }

  static Node *waitOf(Node &start) {
    Node *wait = start.result()->uses()->user();
    assert(wait->op() == Op::wait && "a future is waited for");
    return wait;
  }

  /// Starts gather i as soon as its predecessor has arrived, unless too many units would be held: then after the free
  /// that makes room.
  void prefetch(size_t i) {
    const Gather &before = gathers[i - 1];
    Gather &gather = gathers[i];
    bool backward = gather.wait->section.phase == Phase::backward;
    if (backward ? decisions.backwardPrefetch == "no_prefetch" : !decisions.forwardPrefetch)
      return;
    Node *position = before.wait;
    if (backward && decisions.backwardPrefetch == "backward_post" && before.free && before.free->isBefore(gather.start))
      position = before.free->previous();
    position = latest(position, roomFor(i, position));
    if (position && position->isBefore(gather.start))
      moveStart(gather, position);
  }

  /// The free after which gather i is at most the last allowed one to be held; `position` itself if there is room
  /// already. Gathers are freed roughly in order, so looking back a few is enough; null: there never is room before its
  /// own use.
  Node *roomFor(size_t i, Node *position) {
    int64_t allowed = std::max<int64_t>(decisions.maxInflightAllGathers, 1);
    llvm::SmallVector<Node *, 8> frees;
    int64_t held = 0;
    for (size_t j = i; j-- > 0 && i - j <= lookBack;) {
      Node *free = gathers[j].free;
      if (free && free->isBefore(position))
        continue;
      ++held;
      if (free)
        frees.push_back(free);
    }
    if (held < allowed)
      return position;
    llvm::sort(frees, [](Node *a, Node *b) { return a->isBefore(b); });
    int64_t toFree = held - allowed + 1;
    return toFree <= static_cast<int64_t>(frees.size()) ? frees[toFree - 1] : nullptr;
  }

  static Node *latest(Node *a, Node *b) { return !a || !b ? nullptr : a->isBefore(b) ? b : a; }

  /// The start reads the shard's current version; its read moves along.
  void moveStart(Gather &gather, Node *position) {
    Node *read = gather.start->operand(0)->definer();
    gather.start->moveAfter(position);
    gather.start->section = position->section;
    if (read && read->op() == Op::read && !read->isBefore(gather.start)) {
      read->moveBefore(gather.start);
      read->section = gather.start->section;
    }
  }

  /// A reduction is waited for when the next one starts: its buffer would be the third.
  void delayReductionWaits() {
    Node *pending = nullptr;
    for (Node *node : function) {
      if (node->op() == Op::ret && pending)
        moveWait(*pending, *node);
      if (node->op() != Op::reduceScatterStart)
        continue;
      if (pending)
        moveWait(*pending, *node);
      pending = waitOf(*node);
    }
  }

  void delayScalarWaits() {
    Node *ret = function.returnNode();
    for (Node *node : function)
      if (node->op() == Op::allReduceStart)
        moveWait(*waitOf(*node), *ret);
  }

  /// As late as `before`, or right before the first use of the result if that comes first.
  static void moveWait(Node &wait, Node &before) {
    Node *position = &before;
    for (Use *use = wait.result()->uses(); use; use = use->next())
      if (use->user()->isBefore(position))
        position = use->user();
    if (position == wait.next())
      return;
    wait.moveBefore(position);
    wait.section = position->section;
    if (position->op() == Op::ret && wait.previous())
      wait.section = wait.previous()->section;
  }

  /// Ids follow the order of issue, the same on every rank.
  void numberInOrder() {
    std::vector<Node *> starts;
    int64_t lowest = 0;
    for (Node *node : function)
      if (infoOf(*node).has(startsCollective)) {
        int64_t id = node->get<CollectiveAttributes>().id;
        lowest = starts.empty() ? id : std::min(lowest, id);
        starts.push_back(node);
      }
    for (Node *start : starts)
      start->get<CollectiveAttributes>().id = lowest++;
  }

  static constexpr size_t lookBack = 64;
  Function &function;
  const Decisions &decisions;
  std::vector<Gather> gathers;
};

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    CommScheduler(*function, module.decisions).run();
  return llvm::Error::success();
}

} // namespace

const Pass scheduleComm = {"schedule_comm", Stage::async, Stage::async, true, run};

} // namespace fsdpc
