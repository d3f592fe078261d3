#include "codegen/common/poison.h"

#include "ir/carried.h"
#include "ir/op.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include <array>
#include <map>

namespace fsdpc {

namespace {

/// A position on the compute stream. Positions increase across functions and steps.
using Moment = int64_t;

struct Extent {
  Place place;
  int64_t bytes = 0;
};

Extent extentOf(const Value &value) { return {value.place, value.type().isToken() ? 0 : value.type().bytes()}; }

bool overlap(const Extent &a, const Extent &b) {
  return a.bytes > 0 && b.bytes > 0 && a.place.space == b.place.space &&
         a.place.offsetBytes < b.place.offsetBytes + b.bytes && b.place.offsetBytes < a.place.offsetBytes + a.bytes;
}

/// Returns whether the last node that is not a free has written one of its results over the freed memory.
bool isTakenOver(const Node &free) {
  const Node *before = free.previous();
  while (before && before->op() == Op::free)
    before = before->previous();
  if (!before || before->op() == Op::wait || infoOf(*before).has(aliasesOperand))
    return false;
  const Value *freed = free.operand(0);
  for (unsigned i = 0; i < before->resultCount(); ++i)
    if (before->result(i) != freed && overlap(extentOf(*before->result(i)), extentOf(*freed)))
      return true;
  return false;
}

class PoisonFinder {
public:
  explicit PoisonFinder(llvm::function_ref<const Node *(const Value *)> startOf) : startOf(startOf) {}

  void walk(const Function &function) {
    for (const Node *node : function) {
      ++now;
      if (node->op() == Op::free)
        endLife(*node);
      else if (infoOf(*node).has(startsTransfer))
        start(*node);
      else
        compute(*node);
      if (node->schedule.records >= 0)
        recordedAt[node->schedule.records] = now + freesAfter(*node);
    }
  }

  /// All streams are joined here.
  void join() {
    behind.fill(now);
    for (std::vector<const Node *> &pending : running)
      pending.clear();
    freed.clear();
  }

  llvm::DenseSet<const Node *> excluded;

private:
  static int64_t freesAfter(const Node &node) {
    int64_t count = 0;
    for (const Node *next = node.next(); next && next->op() == Op::free && next->section == node.section &&
                                         next->schedule.outline == node.schedule.outline;
         next = next->next())
      ++count;
    return count;
  }

  void endLife(const Node &free) {
    const Extent extent = extentOf(*free.operand(0));
    claim(extent, nullptr);
    if (isRunningOn(extent))
      excluded.insert(&free);
    else if (extent.bytes > 0)
      freed[{extent.place.space, extent.place.offsetBytes}] = {extent.place.offsetBytes + extent.bytes, &free, now};
  }

  void compute(const Node &node) {
    if (node.op() == Op::wait)
      return wait(node);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      claim(extentOf(*node.result(i)), nullptr);
    claim({node.schedule.workspace, node.schedule.workspaceBytes}, nullptr);
  }

  void start(const Node &node) {
    Moment &known = behind[laneOf(node.schedule.stream)];
    if (node.schedule.awaits >= 0)
      known = std::max(known, recordedAt.lookup(node.schedule.awaits));
    startedAt[&node] = ++startCount;
    claim(extentOf(*node.result(0)), &node);
    claim({node.schedule.workspace, node.schedule.workspaceBytes}, &node);
  }

  /// Compute knows that a collective has ended once it, or a later one on its stream, has been waited for.
  void wait(const Node &node) {
    const Node *start = startOf(node.operand(0));
    std::vector<const Node *> &pending = running[laneOf(start->schedule.stream)];
    if (node.schedule.implied)
      pending.push_back(start);
    else
      llvm::erase_if(pending, [&](const Node *other) { return startedAt.lookup(other) <= startedAt.lookup(start); });
  }

  bool isRunningOn(const Extent &extent) const {
    return llvm::any_of(running, [&](const std::vector<const Node *> &pending) {
      return llvm::any_of(pending, [&](const Node *start) {
        return overlap(extent, extentOf(*start->operand(0))) || overlap(extent, extentOf(*start->result(0))) ||
               overlap(extent, {start->schedule.workspace, start->schedule.workspaceBytes});
      });
    });
  }

  struct Freed {
    int64_t end = 0;
    const Node *node = nullptr;
    Moment moment = 0;
  };
  using FreedRanges = std::map<std::pair<Space, int64_t>, Freed>;

  /// The memory is reused, either by compute, after all that compute did before, or by a transfer, which may run before
  /// a free that it is not ordered after.
  void claim(const Extent &extent, const Node *start) {
    if (extent.bytes <= 0)
      return;
    const int64_t begin = extent.place.offsetBytes, end = begin + extent.bytes;
    auto entry = freed.lower_bound({extent.place.space, begin});
    if (entry != freed.begin())
      if (auto previous = std::prev(entry); previous->first.first == extent.place.space && previous->second.end > begin)
        entry = previous;
    while (entry != freed.end() && entry->first.first == extent.place.space && entry->first.second < end) {
      const auto [key, range] = *entry;
      if (start && range.moment > behind[laneOf(start->schedule.stream)])
        excluded.insert(range.node);
      entry = freed.erase(entry);
      if (key.second < begin)
        freed[key] = {begin, range.node, range.moment};
      if (range.end > end)
        entry = std::next(freed.insert({{key.first, end}, range}).first);
    }
  }

  llvm::function_ref<const Node *(const Value *)> startOf;
  Moment now = 0;
  FreedRanges freed;
  llvm::DenseMap<int32_t, Moment> recordedAt; ///< by event: the moment that it follows
  std::array<Moment, std::size(transferStreams)> behind = {};
  std::array<std::vector<const Node *>, std::size(transferStreams)> running; ///< starts whose wait was implied so far
  llvm::DenseMap<const Node *, int64_t> startedAt;
  int64_t startCount = 0;
};

/// The order of assignEvents. The functions of a step follow each other, also into the next step. The others, and
/// functions that follow themselves, begin and end with all streams joined.
void walkAll(PoisonFinder &finder, const Module &module) {
  const bool followsItself = module.microSteps > 1;
  for (int step = 0; step < 2 && !followsItself; ++step)
    for (FunctionKind kind : {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::update})
      if (const Function *function = module.function(kind))
        finder.walk(*function);
  for (const Function *function : inCallOrder(module))
    if (followsItself || !runsInEveryStep(function->kind())) {
      finder.join();
      finder.walk(*function);
    }
}

} // namespace

llvm::DenseSet<const Node *> freesToPoison(const Module &module, bool hasEvents,
                                           llvm::function_ref<const Node *(const Value *)> startOf) {
  PoisonFinder finder(startOf);
  if (hasEvents)
    walkAll(finder, module);
  llvm::DenseSet<const Node *> chosen;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Node *node : *function)
      if (node->op() == Op::free && node->operand(0)->type().bytes() > 0 && !isTakenOver(*node) &&
          !finder.excluded.contains(node))
        chosen.insert(node);
  return chosen;
}

} // namespace fsdpc
