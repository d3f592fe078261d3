// (V11) to (V14), (V18) and (V23): rules of the stage.
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/ops/norm.h"
#include "ir/queries.h"
#include "ir/reserved_names.h"
#include "ir/verify.h"
#include "ir/verify_rules.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::rules {

namespace {

llvm::Error checkOp(const Module &module, const Node &node) {
  if (addedOperand(node) && module.stage < Stage::sharded)
    return broken("V12", node,
                  infoOf(node).name + " adds no operand in stage " + nameOf(module.stage) + ", only from sharded on");
  if (infoOf(node).stages.contain(module.stage))
    return llvm::Error::success();
  auto [first, last] = infoOf(node).stages;
  std::string message = (infoOf(node).name + " is not allowed in stage " + nameOf(module.stage) + ", only ").str();
  if (last == Stage::planned)
    return broken("V12", node, message + "from " + nameOf(first) + " on");
  return broken("V12", node, message + "in " + nameOf(first));
}

llvm::Error checkCollective(const Module &module, const Node &node) {
  const std::optional<NamedAxis> named = axisNamedBy(node);
  if (!named)
    return llvm::Error::success();
  const MeshAxis *axis = module.axis(named->name);
  if (!axis)
    return broken("V11", node, "the mesh has no axis " + symbolText('@', named->name));
  if (axis->size != named->ranks)
    return broken("V11", node,
                  "mesh axis " + symbolText('@', axis->name) + " has " + llvm::Twine(axis->size) + " ranks");
  return llvm::Error::success();
}

llvm::Error checkStream(const Module &module, const Node &node) {
  if (module.stage < Stage::async || node.op() == Op::ret)
    return llvm::Error::success();
  bool communicates = infoOf(node).has(collective), copies = infoOf(node).has(startsTransfer) && !communicates;
  bool reduces = communicates && node.op() != Op::allGatherStart && module.decisions.ownReduceCommunicator;
  Stream stream = reduces ? Stream::reduce : communicates ? Stream::comm : copies ? Stream::copy : Stream::compute;
  // Only optimizers have implementations for both.
  if (node.schedule.stream == Stream::host && infoOf(node).has(inPlace))
    return llvm::Error::success();
  return node.schedule.stream == stream ? llvm::Error::success()
                                        : broken("V18", node, "it must run on(" + nameOf(stream) + ")");
}

/// The slots of a segment are inside it in ascending order, and the ranks' shards cover the padded elements.
llvm::Error checkSegment(const Module &module, const State &state) {
  auto wrong = [&](const llvm::Twine &message) {
    return broken("V13", "segment " + symbolText('@', state.name) + ": " + message);
  };
  int64_t shard = state.type.elements();
  if (state.type.rank() != 1)
    return wrong("a shard is flat, not " + toString(state.type));
  const MeshAxis *axis = state.over.empty() ? nullptr : module.axis(state.over);
  if (!state.over.empty() && !axis)
    return wrong("the mesh has no axis " + symbolText('@', state.over));
  int64_t ranks = axis ? axis->size : 1, whole;
  if (__builtin_mul_overflow(shard, ranks, &whole) || whole != state.paddedElements)
    return wrong(llvm::Twine(state.paddedElements) + " padded elements are not " + llvm::Twine(ranks) + " shards of " +
                 llvm::Twine(shard));
  int64_t end = 0;
  for (const SegmentSlot &slot : state.slots) {
    if (slot.offsetElements < end)
      return wrong("slot " + symbolText('@', slot.parameter) + " begins before the one before it ends");
    if (slot.elements < 0 || slot.offsetElements > state.paddedElements ||
        slot.elements > state.paddedElements - slot.offsetElements)
      return wrong("slot " + symbolText('@', slot.parameter) + " lies outside");
    end = slot.offsetElements + slot.elements;
  }
  return llvm::Error::success();
}

/// A replica has the slots of its segment, is unsharded or split like it, and has its type or a 16-bit type.
bool isReplica(const Module &module, const State &state) {
  const State *owner = module.state(state.owner);
  if (!owner || owner->role != StateRole::segment || owner->slots != state.slots ||
      owner->paddedElements != state.paddedElements)
    return false;
  bool isRounded = state.type.dtype() != owner->type.dtype();
  bool isAlike = state.over == owner->over;
  return isRounded ? isFloat(state.type.dtype()) && byteSize(state.type.dtype()) == 2 && (isAlike || state.over.empty())
                   : state.over.empty() && !isAlike;
}

/// Accumulates the gradients of a trained segment, unsharded or split like it, or one number. Starts at zero.
bool isAccumulator(const Module &module, const State &state) {
  if (state.initialValue != 0 || !state.slots.empty())
    return false;
  if (state.owner.empty())
    return state.type.isScalar() && isFloat(state.type.dtype()) && state.over.empty();
  const State *owner = module.state(state.owner);
  if (!owner || owner->role != StateRole::segment || !owner->trainable || owner->type.dtype() != state.type.dtype() ||
      state.paddedElements != owner->paddedElements)
    return false;
  bool isUnsharded = state.over.empty() && state.type.shape() == llvm::ArrayRef<int64_t>(owner->paddedElements);
  return isUnsharded || (state.over == owner->over && state.type == owner->type);
}

/// Of no group, or of a group in the place of another scalar, whose multiple it may be.
bool isScalar(const Module &module, const State &state) {
  if (state.owner.empty())
    return !state.factor;
  const State *owner = module.state(state.owner);
  return owner && owner->role == StateRole::scalar && owner->owner.empty() && owner->type == state.type;
}

llvm::Error checkStates(const Module &module) {
  bool whole = module.stage < Stage::sharded;
  for (const State &state : module.states) {
    std::string name = symbolText('@', state.name);
    if (state.role == (whole ? StateRole::segment : StateRole::parameter))
      return broken("V13", "state " + name + ": stage " + nameOf(module.stage) + " has no state of role " +
                               nameOf(state.role));
    if (state.isFlat())
      if (llvm::Error error = checkSegment(module, state))
        return error;
    if (state.role == StateRole::replica && !isReplica(module, state))
      return broken("V13",
                    "replica " + name + " does not hold the values of its owner " + symbolText('@', state.owner));
    if (state.role == StateRole::accumulator && (whole || !isAccumulator(module, state)))
      return broken("V13",
                    "accumulator " + name + " must start at zero and hold gradients of a segment, or one number");
    if (state.role == StateRole::scalar ? !isScalar(module, state) : state.factor.has_value())
      return broken("V13", "state " + name + ": only a scalar in the place of another one may have a factor");
    const Parameter *parameter = module.parameter(state.name);
    if (state.role == StateRole::parameter && !module.parameters.empty() &&
        !(parameter && parameter->type == state.type))
      return broken("V13", "state " + name + " is no parameter of this type");
    if (state.role == StateRole::optimizer && !module.state(state.owner) && !module.parameter(state.owner))
      return broken("V13",
                    "state " + name + ": its owner " + symbolText('@', state.owner) + " is no parameter or segment");
  }
  return llvm::Error::success();
}

/// grad.<name> is a result that has the shape of the trainable state <name>.
llvm::Error checkGradients(const Module &module, const Node &ret) {
  const std::vector<std::string> &names = ret.get<ReturnAttributes>().names;
  for (unsigned i = 0; i < ret.operandCount(); ++i) {
    llvm::StringRef name = names[i];
    if (!name.consume_front(names::gradientPrefix))
      continue;
    const State *state = module.state(name);
    if (!state || !state->trainable || (state->role != StateRole::parameter && state->role != StateRole::segment))
      return broken("V14", ret,
                    "'" + names[i] + "': " + symbolText('@', name) + " is no trainable parameter or segment");
    if (ret.operand(i)->type().shape() != state->type.shape())
      return broken("V14", ret,
                    "'" + names[i] + "' is " + toString(ret.operand(i)->type()) + ", its state " +
                        toString(state->type));
  }
  return llvm::Error::success();
}

/// Only values that forward computes and backward can recompute may be marked.
llvm::Error checkSaving(const Module &module, const Node &node) {
  if (node.schedule.saving == Saving::keep)
    return llvm::Error::success();
  bool isMarkable = infoOf(node).has(pure) && node.section.phase == Phase::forward;
  if (isMarkable && module.stage <= Stage::sharded && node.function()->kind() == FunctionKind::microStep)
    return llvm::Error::success();
  return broken("V12", node, "only pure forward nodes of micro_step have save(...), and up to stage sharded");
}

llvm::Error checkNode(const Module &module, const Node &node) {
  if (llvm::Error error = checkOp(module, node))
    return error;
  if (llvm::Error error = checkSaving(module, node))
    return error;
  if (llvm::Error error = checkCollective(module, node))
    return error;
  return checkStream(module, node);
}

/// `start` computes from constants alone, and its only effect is on tables.
llvm::Error checkStartNode(const Node &node) {
  const bool writesTable = node.op() == Op::write && stateOf(node)->role == StateRole::table;
  const bool computes = infoOf(node).has(pure) && !infoOf(node).has(collective);
  return writesTable || computes || node.op() == Op::free || node.op() == Op::ret
             ? llvm::Error::success()
             : broken("V23", node, "start computes from constants and writes tables, nothing else");
}

/// Each table is written once, by `start`; other functions read it.
llvm::Error checkTablesOfStart(const Module &module) {
  llvm::StringSet<> written;
  for (const std::unique_ptr<Function> &function : module.functions) {
    const bool isStart = function->kind() == FunctionKind::start;
    if (isStart && (!function->arguments().empty() || function->returnNode()->operandCount() > 0))
      return broken("V23", *function, "it has no arguments and no results");
    for (Node *node : *function) {
      if (llvm::Error error = isStart ? checkStartNode(*node) : llvm::Error::success())
        return error;
      if (node->op() != Op::write || stateOf(*node)->role != StateRole::table)
        continue;
      if (!isStart || !written.insert(stateOf(*node)->name).second)
        return broken("V23", *node, "a table is written once, by start");
    }
  }
  for (const State &state : module.states)
    if (state.role == StateRole::table && !written.contains(state.name))
      return broken("V23", "table " + symbolText('@', state.name) + ": start does not write it");
  return llvm::Error::success();
}

} // namespace

llvm::Error checkStage(const Module &module) {
  if (llvm::Error error = checkStates(module))
    return error;
  for (const std::unique_ptr<Function> &function : module.functions) {
    bool forward = function->kind() == FunctionKind::forward;
    if (forward != (module.stage == Stage::graph))
      return broken("V12", *function, "stage " + nameOf(module.stage) + " has no such function");
    for (const Argument &argument : function->arguments())
      if (forward && argument.kind != ArgumentKind::input)
        return broken("V12", *function, "the arguments of forward are inputs, but '" + argument.name + "' is carried");
    for (Node *node : *function)
      if (llvm::Error error = checkNode(module, *node))
        return error;
    // In other functions a result may have such a name by chance, because outputs have the model's names.
    if (function->kind() == FunctionKind::microStep)
      if (llvm::Error error = checkGradients(module, *function->returnNode()))
        return error;
  }
  return checkTablesOfStart(module);
}

} // namespace fsdpc::rules
