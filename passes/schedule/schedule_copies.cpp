// Overlaps copies between the device and its host with compute: twice their predicted time, and at most one region of a
// unit. Only moves nodes: starts of reloads up, waits of offloads down.
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/section_regions.h"
#include "llvm/ADT/StringMap.h"
#include <limits>

namespace fsdpc {

namespace {

/// Factor on the predicted time: predictions are not exact, and a late copy costs more than keeping memory for a while.
constexpr double slack = 2;

bool startsCopy(const Node &node) { return node.op() == Op::reloadStart || node.op() == Op::offloadStart; }

bool hasCopies(const Function &function) {
  for (const Node *node : function)
    if (startsCopy(*node))
      return true;
  return false;
}

class CopyScheduler {
public:
  CopyScheduler(Function &function, const Target &target)
      : function(function), target(target), regionOf(unitRegions(function)) {}

  void run() {
    walk();
    placeReloads();
    placeOffloads();
  }

private:
  struct Reload {
    Node *start;
    size_t place;         ///< the first of `staying` after it
    const Node *earliest; ///< it must be after this node; may be null
  };

  static bool mayMove(const Node &node) {
    const Node *start = node.op() == Op::wait ? node.operand(0)->definer() : &node;
    return node.op() == Op::read || (start && startsCopy(*start));
  }

  static bool isRead(const Node *node) { return node && node->op() == Op::read; }

  void walk() {
    llvm::StringMap<Node *> lastWrite;
    double now = 0;
    for (Node *node : function) {
      if (node->op() == Op::write)
        lastWrite[node->get<StateAttributes>().state.name] = node;
      else if (node->op() == Op::reloadStart)
        reloads.push_back({node, staying.size(), whatMustBeBefore(*node, lastWrite)});
      else if (node->op() == Op::offloadStart)
        offloads.emplace_back(node, staying.size());
      if (mayMove(*node))
        continue;
      firstOfRegion.resize(std::max(firstOfRegion.size(), regionOf.lookup(node) + 1), staying.size());
      staying.push_back(node);
      reached.push_back(now);
      const bool isComputed = node->schedule.stream == Stream::compute || node->schedule.stream == Stream::host;
      now += isComputed ? target.costMicroseconds(*node) : 0;
    }
  }

  /// A state's read moves with the start: it must stay after the last write.
  static const Node *whatMustBeBefore(const Node &start, const llvm::StringMap<Node *> &lastWrite) {
    const Node *definer = start.operand(0)->definer();
    return isRead(definer) ? lastWrite.lookup(definer->get<StateAttributes>().state.name) : definer;
  }

  /// The first position from `begin` on, or `end`, that compute reaches at this time or later.
  size_t placeAt(double time, size_t begin, size_t end) const {
    auto first = reached.begin();
    return std::lower_bound(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end), time) - first;
  }

  /// Starts each as late as it can still end in time, one after the other, but not before the region that precedes its
  /// reader's.
  void placeReloads() {
    std::vector<double> latest(reloads.size() + 1, std::numeric_limits<double>::infinity());
    for (size_t i = reloads.size(); i-- > 0;)
      latest[i] =
          std::min(latest[i + 1], reached[reloads[i].place]) - slack * target.costMicroseconds(*reloads[i].start);
    for (size_t i = 0; i < reloads.size(); ++i) {
      const Reload &reload = reloads[i];
      const size_t run = regionOf.lookup(reload.start);
      Node *position = staying[placeAt(latest[i], firstOfRegion[run > 0 ? run - 1 : 0], reload.place)];
      if (reload.earliest && !reload.earliest->isBefore(position))
        position = reload.earliest->next();
      if (position->isBefore(reload.start))
        place(*reload.start, *position);
    }
  }

  static void place(Node &start, Node &position) {
    moveBefore(start, position);
    if (Node *read = start.operand(0)->definer(); isRead(read) && !read->isBefore(&start))
      moveBefore(*read, start);
  }

  static void moveBefore(Node &node, Node &position) {
    node.moveBefore(&position);
    node.section = position.section;
  }

  /// Waits where the copy will have ended, at the latest at the end of the next region, before the first reader of the
  /// result.
  void placeOffloads() {
    double end = 0;
    for (const auto &[start, place] : offloads) {
      end = std::max(end, reached[place]) + slack * target.costMicroseconds(*start);
      const size_t behind = regionOf.lookup(start) + 2;
      Node *wait = waitOf(*start);
      Node *position =
          staying[placeAt(end, place, behind < firstOfRegion.size() ? firstOfRegion[behind] : staying.size() - 1)];
      if (Node *user = firstUser(*wait->result()); user && user->isBefore(position))
        position = user;
      if (!wait->isBefore(position) || wait->next() == position)
        continue;
      const Section section = position->previous()->section;
      wait->moveBefore(position);
      wait->section = section;
    }
  }

  Function &function;
  const Target &target;
  const llvm::DenseMap<const Node *, size_t> regionOf;
  std::vector<Node *> staying;       ///< nodes that do not move, the return last
  std::vector<double> reached;       ///< time at which compute reaches each of them, microseconds
  std::vector<size_t> firstOfRegion; ///< index among them; for a region that has none, the next region's
  std::vector<Reload> reloads;       ///< in program order
  std::vector<std::pair<Node *, size_t>> offloads;
};

llvm::Error run(Module &module, const PassContext &context) {
  if (module.decisions.overlapComm)
    for (const std::unique_ptr<Function> &function : module.functions)
      if (hasCopies(*function))
        CopyScheduler(*function, context.target).run();
  return llvm::Error::success();
}

} // namespace

const Pass scheduleCopies = {"schedule_copies", Stage::async, Stage::async, true, run};

} // namespace fsdpc
