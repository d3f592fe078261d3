// Copies between the device and its host get time: one run of a unit each. It only moves nodes: starts of reloads up,
// waits of offloads down.
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/section_runs.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

namespace {

class CopyScheduler {
public:
  explicit CopyScheduler(Function &function) : function(function), runOf(unitRuns(function)) {
    for (Node *node : function)
      if (!mayMove(*node))
        firstOfRun.resize(std::max(firstOfRun.size(), runOf.lookup(node) + 1), node);
  }

  void run() {
    llvm::StringMap<Node *> lastWrite;
    std::vector<Node *> offloads;
    for (Node *node : function) {
      if (node->op() == Op::write)
        lastWrite[node->get<StateAttributes>().state.name] = node;
      else if (node->op() == Op::reloadStart)
        advance(*node, lastWrite);
      else if (node->op() == Op::offloadStart)
        offloads.push_back(node);
    }
    for (Node *start : offloads)
      delay(*start);
  }

private:
  static bool mayMove(const Node &node) {
    const Node *start = node.op() == Op::wait ? node.operand(0)->definer() : &node;
    return node.op() == Op::read || (start && (start->op() == Op::reloadStart || start->op() == Op::offloadStart));
  }

  static Node *waitOf(const Node &start) { return start.result()->uses()->user(); }

  /// To the beginning of the run before, behind what it copies. A state's read moves along, behind the last write.
  void advance(Node &start, const llvm::StringMap<Node *> &lastWrite) {
    const size_t run = runOf.lookup(&start);
    Node *position = firstOfRun[run > 0 ? run - 1 : 0];
    Node *definer = start.operand(0)->definer(), *earliest = definer;
    const bool isRead = definer && definer->op() == Op::read;
    if (isRead)
      earliest = lastWrite.lookup(definer->get<StateAttributes>().state.name);
    if (earliest && !earliest->isBefore(position))
      position = earliest->next();
    if (!position->isBefore(&start))
      return;
    place(start, *position);
    if (isRead && !definer->isBefore(&start))
      place(*definer, start);
  }

  static void place(Node &node, Node &position) {
    node.moveBefore(&position);
    node.section = position.section;
  }

  /// To the end of the run behind it, before the first reader of what has arrived.
  void delay(Node &start) {
    Node *wait = waitOf(start);
    const size_t behind = runOf.lookup(&start) + 2;
    Node *position = behind < firstOfRun.size() ? firstOfRun[behind] : function.returnNode();
    if (Node *user = firstUser(*wait->result()); user && user->isBefore(position))
      position = user;
    if (!wait->isBefore(position) || wait->next() == position)
      return;
    const Section section = position->previous()->section;
    wait->moveBefore(position);
    wait->section = section;
  }

  Function &function;
  const llvm::DenseMap<const Node *, size_t> runOf;
  std::vector<Node *> firstOfRun; ///< of those that stay; of a run that has none, the next one's
};

llvm::Error run(Module &module, const PassContext &) {
  if (module.decisions.overlapComm)
    for (const std::unique_ptr<Function> &function : module.functions)
      CopyScheduler(*function).run();
  return llvm::Error::success();
}

} // namespace

const Pass scheduleCopies = {"schedule_copies", Stage::async, Stage::async, true, run};

} // namespace fsdpc
