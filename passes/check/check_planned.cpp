// checkPlanned: checks the order of collectives, then memory for every sequence of functions that a program runs, then
// event order on a device.
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/check/check_schedule.h"
#include "passes/check/event_order.h"
#include "passes/check/memory_walk.h"

namespace fsdpc {

using namespace check;

namespace {

/// Ids identify collectives in messages between ranks and in traces, so they must increase in order of issue.
class CollectiveOrder {
public:
  explicit CollectiveOrder(const Module &module) : module(module) {}
  llvm::Error check(const Function &function);

private:
  llvm::Error checkGroup(const Node &node) const;
  llvm::Error checkStream(const Node &node) const;
  const Module &module;
  llvm::DenseSet<int64_t> ids;
};

llvm::Error CollectiveOrder::checkGroup(const Node &node) const {
  const std::optional<NamedAxis> named = axisNamedBy(node);
  if (!named)
    return llvm::Error::success();
  const MeshAxis *axis = module.axis(named->name);
  if (!axis)
    return fault(Fault::collectiveOrder, node, "the mesh has no axis " + symbolText('@', named->name));
  if (axis->size == named->ranks)
    return llvm::Error::success();
  return fault(Fault::collectiveOrder, node,
               "mesh axis " + symbolText('@', axis->name) + " has " + llvm::Twine(axis->size) + " ranks");
}

/// A communicator belongs to one stream: two concurrent collectives on it would receive each other's messages.
llvm::Error CollectiveOrder::checkStream(const Node &node) const {
  bool communicates = infoOf(node).has(collective);
  bool reduces = communicates && node.op() != Op::allGatherStart && module.decisions.ownReduceCommunicator;
  bool copies = node.op() == Op::offloadStart || node.op() == Op::reloadStart;
  Stream stream = reduces ? Stream::reduce : communicates ? Stream::comm : copies ? Stream::copy : Stream::compute;
  bool mayBeOnHost = infoOf(node).has(inPlace) && node.schedule.stream == Stream::host;
  if (node.op() == Op::ret || node.schedule.stream == stream || mayBeOnHost)
    return llvm::Error::success();
  return fault(Fault::collectiveOrder, node, llvm::Twine("it must run on(") + nameOf(stream) + ")");
}

llvm::Error CollectiveOrder::check(const Function &function) {
  int64_t last = -1;
  for (Node *node : function) {
    if (llvm::Error error = checkStream(*node))
      return error;
    if (llvm::Error error = checkGroup(*node))
      return error;
    if (!infoOf(*node).has(collective))
      continue;
    if (!infoOf(*node).has(startsTransfer))
      return fault(Fault::collectiveOrder, *node, "it is a collective that no start and wait order");
    int64_t id = node->get<CollectiveAttributes>().id;
    if (id <= last || id > INT32_MAX)
      return fault(Fault::collectiveOrder, *node,
                   "id " + llvm::Twine(id) + " is issued after id " + llvm::Twine(last) +
                       ": ids count up in order of issue");
    if (!ids.insert(id).second)
      return fault(Fault::collectiveOrder, *node, "id " + llvm::Twine(id) + " belongs to another collective");
    last = id;
  }
  return llvm::Error::success();
}

using Sequence = llvm::SmallVector<const Function *, 4>;

Sequence presentOf(const Module &module, std::initializer_list<FunctionKind> kinds) {
  Sequence sequence;
  // A second call starts from the memory that the first leaves; every later call starts from the same.
  for (FunctionKind kind : kinds)
    if (const Function *function = module.function(kind))
      sequence.append(runsInEveryMicroStep(kind) && module.microSteps > 1 ? 2 : 1, function);
  return sequence;
}

/// The functions that a program runs between two points at which only states and inputs hold values. Gradients are
/// tapped in some steps only.
llvm::SmallVector<Sequence, 4> sequencesOf(const Module &module) {
  using Kind = FunctionKind;
  llvm::SmallVector<Sequence, 4> sequences = {presentOf(module, {Kind::prologue, Kind::microStep, Kind::update})};
  if (module.function(Kind::tapGradients))
    sequences.push_back(presentOf(module, {Kind::prologue, Kind::microStep, Kind::tapGradients, Kind::update}));
  sequences.push_back(presentOf(module, {Kind::evalStep}));
  sequences.push_back(presentOf(module, {Kind::predict}));
  sequences.push_back(presentOf(module, {Kind::exportWeights}));
  sequences.push_back(presentOf(module, {Kind::exportAverages}));
  sequences.push_back(presentOf(module, {Kind::start}));
  return sequences;
}

} // namespace

llvm::Error checkPlanned(const Module &planned) {
  assert(planned.stage == Stage::planned && "the checker reads planned modules");
  CollectiveOrder order(planned);
  for (const std::unique_ptr<Function> &function : planned.functions)
    if (llvm::Error error = order.check(*function))
      return error;
  for (const Sequence &sequence : sequencesOf(planned))
    if (llvm::Error error = MemoryWalk(planned).run(sequence))
      return error;
  return planned.facts.isOrderedByEvents ? checkEvents(planned) : llvm::Error::success();
}

} // namespace fsdpc
