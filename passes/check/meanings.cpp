#include "passes/check/meanings.h"

#include "ir/ops/attributes.h"
#include "passes/check/fault.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

namespace {

bool isSameRun(const Slot &slot, int64_t offset, int64_t elements) {
  return slot.offset == offset && slot.elements == elements;
}

/// The slot that covers exactly these elements; null if there is none.
const Slot *findSlot(const Segment &segment, int64_t offset, int64_t elements) {
  auto first = llvm::partition_point(segment.slots, [&](const Slot &slot) { return slot.offset < offset; });
  for (; first != segment.slots.end() && first->offset == offset; ++first)
    if (first->elements == elements)
      return &*first;
  return nullptr;
}

bool touches(const Segment &segment, int64_t offset, int64_t elements) {
  auto behind =
      llvm::partition_point(segment.slots, [&](const Slot &slot) { return slot.offset + slot.elements <= offset; });
  return behind != segment.slots.end() && behind->offset < offset + elements;
}

LogicalName logicalName(const State &state) {
  return state.role == StateRole::optimizer ? LogicalName{state.owner, state.field} : LogicalName{state.name, ""};
}

} // namespace

const State *ownerOfGradient(const Module &module, llvm::StringRef name, StateRole role) {
  const State *state = name.consume_front("grad.") ? module.state(name) : nullptr;
  return state && state->role == role ? state : nullptr;
}

llvm::StringMap<Type> gradientsOf(const Module &train) {
  llvm::StringMap<Type> gradients;
  const Function *microStep = train.function(FunctionKind::microStep);
  const Node *ret = microStep ? microStep->returnNode() : nullptr;
  for (unsigned i = 0; ret && i < ret->operandCount(); ++i)
    if (const State *state = ownerOfGradient(train, ret->get<ReturnAttributes>().names[i], StateRole::parameter))
      gradients[state->name] = ret->operand(i)->type();
  return gradients;
}

FunctionMeaning::FunctionMeaning(const Module &module, const Module &train, Terms &terms)
    : module(module), train(train), terms(terms), gradients(gradientsOf(train)) {}

// ---- symbols
// ----------------------------------------------------------------------------------------------------------------

Meaning FunctionMeaning::add(Segment segment) {
  segments.push_back(std::move(segment));
  return {-1, static_cast<int32_t>(segments.size()) - 1};
}

const State *FunctionMeaning::layoutOf(const State &state) const {
  if (state.role == StateRole::segment)
    return &state;
  const State *owner = state.role == StateRole::optimizer ? module.state(state.owner) : nullptr;
  return owner && owner->role == StateRole::segment ? owner : nullptr;
}

Meaning FunctionMeaning::stateSegment(const State &layout, llvm::StringRef field, DType dtype) {
  Segment segment{.isShard = splits(), .elements = layout.paddedElements};
  for (const SegmentSlot &slot : layout.slots) {
    const State *parameter = train.state(slot.parameter);
    Type type = parameter ? parameter->type.withDType(dtype) : Type(dtype, {slot.elements});
    std::string name = LogicalName{slot.parameter, field.str()}.text();
    segment.slots.push_back({slot.offsetElements, slot.elements, terms.leaf(Terms::Kind::state, name, type)});
  }
  return add(std::move(segment));
}

Meaning FunctionMeaning::carriedSegment(const State &layout) {
  Segment segment{.isShard = splits(), .elements = layout.paddedElements};
  for (const SegmentSlot &slot : layout.slots)
    if (auto found = gradients.find(slot.parameter); found != gradients.end())
      segment.slots.push_back({slot.offsetElements, slot.elements,
                               terms.leaf(Terms::Kind::carry, "grad." + slot.parameter, found->second)});
  return add(std::move(segment));
}

Meaning FunctionMeaning::entryOf(const State &state) {
  if (const State *layout = layoutOf(state))
    return stateSegment(*layout, state.role == StateRole::segment ? "" : state.field, state.type.dtype());
  return {terms.leaf(Terms::Kind::state, logicalName(state).text(), state.type), -1};
}

llvm::Error FunctionMeaning::readArgument(const Function &function, const Argument &argument) {
  const Value *value = argument.value.get();
  const State *layout =
      argument.kind == ArgumentKind::carry ? ownerOfGradient(module, argument.name, StateRole::segment) : nullptr;
  if (layout) {
    meanings[value] = carriedSegment(*layout);
    return llvm::Error::success();
  }
  Terms::Kind kind = argument.kind == ArgumentKind::input ? Terms::Kind::input : Terms::Kind::carry;
  meanings[value] = {
      terms.leaf(kind, argument.name, value->type().isFuture() ? value->type().delivered() : value->type()), -1};
  return llvm::Error::success();
}

llvm::Error FunctionMeaning::read(const Function &function) {
  for (const Argument &argument : function.arguments())
    if (llvm::Error error = readArgument(function, argument))
      return error;
  for (Node *node : function)
    if (llvm::Error error = readNode(*node))
      return error;
  return llvm::Error::success();
}

// ---- nodes
// ------------------------------------------------------------------------------------------------------------------

llvm::Error FunctionMeaning::readNode(const Node &node) {
  switch (node.op()) {
  case Op::free: return llvm::Error::success();
  case Op::copy:
  case Op::wait: set(node, of(node.operand(0))); return llvm::Error::success();
  case Op::read: {
    const State &state = *module.state(node.get<StateAttributes>().state.name);
    auto [version, isNew] = current.try_emplace(&state);
    if (isNew)
      version->second = entryOf(state);
    set(node, version->second);
    return llvm::Error::success();
  }
  case Op::write: return readWrite(node);
  case Op::tap: return readTap(node);
  case Op::view: return readView(node);
  case Op::pack: return readPack(node);
  case Op::allGather:
  case Op::allGatherStart: return readGather(node);
  case Op::reduceScatter:
  case Op::reduceScatterStart:
  case Op::allReduce:
  case Op::allReduceStart: return readReduction(node);
  case Op::ret:
    for (unsigned i = 0; i < node.operandCount(); ++i)
      results.push_back({node.get<ReturnAttributes>().names[i], of(node.operand(i))});
    return llvm::Error::success();
  default: break;
  }
  bool onSegment = infoOf(node).has(inPlace) && of(node.operand(0)).segment >= 0;
  return onSegment ? readOptimizer(node) : readTensorNode(node);
}

llvm::Error FunctionMeaning::readTensorNode(const Node &node) {
  llvm::SmallVector<TermId, 8> operands;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    operands.push_back(of(node.operand(i)).term);
    if (operands.back() < 0)
      return fault(Fault::shardBounds, node,
                   textOf(node.operand(i)) + " is a run of several parameters, not one tensor");
  }
  llvm::SmallVector<TermId, 2> values = terms.apply(node, operands);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    meanings[node.result(i)] = {values[i], -1};
  return llvm::Error::success();
}

llvm::Error FunctionMeaning::readView(const Node &node) {
  Meaning operand = of(node.operand(0));
  const Type &type = node.result()->type();
  if (operand.segment < 0) {
    bool whole = operand.term >= 0 && type.elements() == node.operand(0)->type().elements();
    if (!whole)
      return readTensorNode(node);
    set(node, {terms.reshape(operand.term, type.shape(), &node), -1});
    return llvm::Error::success();
  }
  if (segment(operand).isShard)
    return fault(Fault::shardBounds, node, "it shows one rank's shard, which has not been gathered");
  int64_t offset = node.get<ViewAttributes>().offset;
  const Slot *slot = findSlot(segment(operand), offset, type.elements());
  if (!slot)
    return fault(Fault::shardBounds, node,
                 "no parameter lies at elements " + llvm::Twine(offset) + " to " +
                     llvm::Twine(offset + type.elements()) + " of the segment");
  set(node, {terms.reshape(slot->term, type.shape(), &node), -1});
  return llvm::Error::success();
}

llvm::Error FunctionMeaning::readPack(const Node &node) {
  const auto &pack = node.get<PackAttributes>();
  Segment segment{.elements = pack.elements};
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    Meaning part = of(node.operand(i));
    if (part.term < 0)
      return fault(Fault::shardBounds, node,
                   textOf(node.operand(i)) + " is a run of several parameters, not one tensor");
    segment.slots.push_back({pack.offsets[i], node.operand(i)->type().elements(), part.term});
  }
  set(node, add(std::move(segment)));
  return llvm::Error::success();
}

llvm::Error FunctionMeaning::checkSpansAllRanks(const Node &node) const {
  if (node.get<CollectiveAttributes>().ranks == module.worldSize())
    return llvm::Error::success();
  return fault(Fault::collectiveOrder, node,
               "it runs over " + llvm::Twine(node.get<CollectiveAttributes>().ranks) + " of " +
                   llvm::Twine(module.worldSize()) + " ranks");
}

llvm::Error FunctionMeaning::readGather(const Node &node) {
  if (llvm::Error error = checkSpansAllRanks(node))
    return error;
  Meaning operand = of(node.operand(0));
  if (operand.segment < 0 || segment(operand).isShard != splits())
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is no shard of a segment");
  Segment whole = segment(operand);
  if (node.result()->type().elements() != whole.elements)
    return fault(Fault::shardBounds, node, "the shards have " + llvm::Twine(whole.elements) + " elements together");
  whole.isShard = false;
  set(node, add(std::move(whole)));
  return llvm::Error::success();
}

llvm::Error FunctionMeaning::readReduction(const Node &node) {
  if (llvm::Error error = checkSpansAllRanks(node))
    return error;
  Meaning operand = of(node.operand(0));
  bool scatters = node.op() == Op::reduceScatter || node.op() == Op::reduceScatterStart;
  if (operand.segment < 0 && !scatters) {
    set(node, {terms.batchSum(operand.term, &node), -1});
    return llvm::Error::success();
  }
  bool isWhole = operand.segment >= 0 && !segment(operand).isShard;
  if (!isWhole)
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is no whole segment of gradients");
  Segment sum = segment(operand);
  for (Slot &slot : sum.slots)
    slot.term = terms.batchSum(slot.term, &node);
  sum.isShard = scatters && splits();
  set(node, add(std::move(sum)));
  return llvm::Error::success();
}

/// The operands of an optimizer node for one parameter of its segment, all in the parameter's shape.
llvm::Expected<llvm::SmallVector<TermId, 8>> FunctionMeaning::operandsOfSlot(const Node &node, const Slot &slot) {
  Shape shape(terms[slot.term].type.shape());
  llvm::SmallVector<TermId, 8> operands;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    Meaning operand = of(node.operand(i));
    if (operand.segment < 0) {
      if (operand.term < 0 || !node.operand(i)->type().isScalar())
        return fault(Fault::shardBounds, node, textOf(node.operand(i)) + " is no segment like the first operand");
      operands.push_back(operand.term);
      continue;
    }
    const Segment &other = segment(operand);
    const Slot *found = findSlot(other, slot.offset, slot.elements);
    if (other.isShard != splits() || (!found && touches(other, slot.offset, slot.elements)))
      return fault(Fault::shardBounds, node, textOf(node.operand(i)) + " is laid out otherwise than the first operand");
    if (!found)
      return fault(Fault::gradientContribution, node,
                   textOf(node.operand(i)) + " has nothing for " + terms.describe(slot.term));
    operands.push_back(terms.reshape(found->term, shape, &node));
  }
  return operands;
}

llvm::Error FunctionMeaning::readOptimizer(const Node &node) {
  const Segment &parameters = segment(of(node.operand(0)));
  std::vector<Segment> next(node.resultCount(), parameters);
  for (size_t i = 0; i < parameters.slots.size(); ++i) {
    const Slot &slot = parameters.slots[i];
    llvm::Expected<llvm::SmallVector<TermId, 8>> operands = operandsOfSlot(node, slot);
    if (!operands)
      return operands.takeError();
    Type type = terms[slot.term].type;
    for (unsigned k = 0; k < node.resultCount(); ++k)
      next[k].slots[i].term = terms.applyOne(node, *operands, k, type);
  }
  for (unsigned k = 0; k < node.resultCount(); ++k)
    meanings[node.result(k)] = add(std::move(next[k]));
  return llvm::Error::success();
}

// ---- what is left behind
// ----------------------------------------------------------------------------------------------------

llvm::Error FunctionMeaning::recordSegment(const Node &node, const State &state, const Segment &segment) {
  const State &layout = *layoutOf(state);
  auto isInPlace = [](const Slot &slot, const SegmentSlot &home) {
    return isSameRun(slot, home.offsetElements, home.elements);
  };
  if (segment.isShard != splits() || segment.elements != layout.paddedElements ||
      !std::equal(segment.slots.begin(), segment.slots.end(), layout.slots.begin(), layout.slots.end(), isInPlace))
    return fault(Fault::shardBounds, node, "what is written is laid out otherwise than the state");
  llvm::StringRef field = state.role == StateRole::segment ? "" : llvm::StringRef(state.field);
  for (size_t i = 0; i < segment.slots.size(); ++i)
    written[{layout.slots[i].parameter, field.str()}] = segment.slots[i].term;
  return llvm::Error::success();
}

llvm::Error FunctionMeaning::readWrite(const Node &node) {
  const State &state = *module.state(node.get<StateAttributes>().state.name);
  Meaning meaning = of(node.operand(0));
  current[&state] = meaning;
  bool isSegment = layoutOf(state) != nullptr;
  if (isSegment != (meaning.segment >= 0))
    return fault(Fault::shardBounds, node, "what is written is laid out otherwise than the state");
  if (isSegment)
    return recordSegment(node, state, segment(meaning));
  written[logicalName(state)] = meaning.term;
  return llvm::Error::success();
}

llvm::Error FunctionMeaning::readTap(const Node &node) {
  Meaning meaning = of(node.operand(0));
  if (meaning.term < 0)
    return fault(Fault::shardBounds, node, "a run of several parameters is tapped, not one tensor");
  taps.push_back({node.get<TapAttributes>().parameter.name, meaning.term, &node});
  return llvm::Error::success();
}

} // namespace fsdpc::check
