// Copies between the device and its host get time: twice what they are predicted to take, and at most one run of a
// unit. It only moves nodes: starts of reloads up, waits of offloads down.
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/section_runs.h"
#include "llvm/ADT/StringMap.h"
#include <limits>

namespace fsdpc {

namespace {

/// Times as long as predicted: predictions are not exact, and a copy that comes late costs more than memory held a
/// while.
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
      : function(function), target(target), runOf(unitRuns(function)) {}

  void run() {
    walk();
    placeReloads();
    placeOffloads();
  }

private:
  struct Reload {
    Node *start;
    size_t place;         ///< the first of `staying` behind it
    const Node *earliest; ///< it must stand behind this; may be null
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
      firstOfRun.resize(std::max(firstOfRun.size(), runOf.lookup(node) + 1), staying.size());
      staying.push_back(node);
      reached.push_back(now);
      const bool isComputed = node->schedule.stream == Stream::compute || node->schedule.stream == Stream::host;
      now += isComputed ? target.costMicroseconds(*node) : 0;
    }
  }

  /// A state's read moves along: it must stay behind the last write.
  static const Node *whatMustBeBefore(const Node &start, const llvm::StringMap<Node *> &lastWrite) {
    const Node *definer = start.operand(0)->definer();
    return isRead(definer) ? lastWrite.lookup(definer->get<StateAttributes>().state.name) : definer;
  }

  /// The first place from `begin` on, or `end`, that compute comes to at this time or later.
  size_t placeAt(double time, size_t begin, size_t end) const {
    auto first = reached.begin();
    return std::lower_bound(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end), time) - first;
  }

  /// So late that each ends in time, one after the other; not before the run that precedes its reader's.
  void placeReloads() {
    std::vector<double> latest(reloads.size() + 1, std::numeric_limits<double>::infinity());
    for (size_t i = reloads.size(); i-- > 0;)
      latest[i] =
          std::min(latest[i + 1], reached[reloads[i].place]) - slack * target.costMicroseconds(*reloads[i].start);
    for (size_t i = 0; i < reloads.size(); ++i) {
      const Reload &reload = reloads[i];
      const size_t run = runOf.lookup(reload.start);
      Node *position = staying[placeAt(latest[i], firstOfRun[run > 0 ? run - 1 : 0], reload.place)];
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

  /// Where it will have ended; at the latest at the end of the run behind it, before the first reader of what arrives.
  void placeOffloads() {
    double end = 0;
    for (const auto &[start, place] : offloads) {
      end = std::max(end, reached[place]) + slack * target.costMicroseconds(*start);
      const size_t behind = runOf.lookup(start) + 2;
      Node *wait = waitOf(*start);
      Node *position =
          staying[placeAt(end, place, behind < firstOfRun.size() ? firstOfRun[behind] : staying.size() - 1)];
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
  const llvm::DenseMap<const Node *, size_t> runOf;
  std::vector<Node *> staying;    ///< what does not move, the return last
  std::vector<double> reached;    ///< by compute, microseconds: each of them
  std::vector<size_t> firstOfRun; ///< among them; of a run that has none, the next one's
  std::vector<Reload> reloads;    ///< in program order
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
