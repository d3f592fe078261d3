#include "passes/check/meanings.h"

#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "ir/reserved_names.h"
#include "passes/check/fault.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

namespace {

bool isSameRange(const Slot &slot, int64_t offset, int64_t elements) {
  return slot.offset == offset && slot.elements == elements;
}

LogicalName logicalName(const State &state) {
  return state.role == StateRole::optimizer ? LogicalName{state.owner, state.field} : LogicalName{state.name, ""};
}

} // namespace

const State *ownerOfGradient(const Module &module, llvm::StringRef name, StateRole role) {
  const State *state = name.consume_front(names::gradientPrefix) ? module.state(name) : nullptr;
  return state && state->role == role ? state : nullptr;
}

// ---- symbols

Meaning StepMeaning::add(Segment segment) {
  segments.push_back(std::move(segment));
  return {-1, static_cast<int32_t>(segments.size()) - 1};
}

const State *StepMeaning::layoutOf(const State &state) const {
  if (state.role == StateRole::segment || (state.role == StateRole::buffer && state.isFlat()))
    return &state;
  bool follows =
      state.role == StateRole::optimizer || state.role == StateRole::replica || state.role == StateRole::accumulator;
  const State *owner = follows ? module.state(state.owner) : nullptr;
  return owner && owner->role == StateRole::segment ? owner : nullptr;
}

RankGroup StepMeaning::splitOf(const State &state) const {
  const State *layout = layoutOf(state);
  bool splitsItself = state.role == StateRole::replica || state.role == StateRole::accumulator;
  const State *split = splitsItself ? &state : layout;
  return split && !split->over.empty() ? RankGroup::of(module.axis(split->over)) : RankGroup{};
}

RankGroup StepMeaning::groupOf(const Node &node) const { return RankGroup::of(module.axis(axisNamedBy(node)->name)); }

Meaning StepMeaning::entryOf(const State &state) {
  const State *layout = layoutOf(state);
  bool isZeroAtFirst = state.role == StateRole::accumulator;
  if (!layout && isZeroAtFirst)
    return {terms.zeros(state.type), -1};
  if (!layout)
    return {terms.leaf(Terms::Kind::state, logicalName(state).text(), state.type), -1};
  std::string field = state.role == StateRole::optimizer ? state.field : "";
  Segment segment{.split = splitOf(state), .elements = layout->paddedElements};
  for (const SegmentSlot &slot : layout->slots) {
    const State *parameter = train.state(slot.parameter);
    DType dtype = state.role == StateRole::replica ? layout->type.dtype() : state.type.dtype();
    Type type = parameter ? parameter->type.withDType(dtype) : Type(dtype, {slot.elements});
    std::string name = LogicalName{slot.parameter, field}.text();
    TermId term = isZeroAtFirst ? terms.zeros(type) : terms.leaf(Terms::Kind::state, name, type);
    segment.slots.push_back({slot.offsetElements, slot.elements, terms.cast(term, state.type.dtype())});
  }
  return add(std::move(segment));
}

Meaning StepMeaning::versionOf(const State &state) {
  auto [version, isNew] = current.try_emplace(&state);
  if (isNew)
    version->second = entryOf(state);
  return version->second;
}

llvm::Error StepMeaning::readArgument(const Argument &argument) {
  const Value *value = argument.value.get();
  auto found = carried.find(argument.name);
  if (argument.kind == ArgumentKind::carry && found != carried.end()) {
    meanings[value] = found->second;
    return llvm::Error::success();
  }
  auto over = llvm::find_if(carriedOver, [&](const CarriedOver &entry) { return entry.argument == &argument; });
  if (over != carriedOver.end() && over->start)
    return gatherOf(*over->start, entryOf(*module.state(over->state()))).moveInto(meanings[value]);
  Terms::Kind kind = argument.kind == ArgumentKind::input ? Terms::Kind::input : Terms::Kind::carry;
  Type type = value->type().isFuture() ? value->type().delivered() : value->type();
  meanings[value] = {terms.leaf(kind, argument.name, type), -1};
  return llvm::Error::success();
}

/// Together with checkCarriedOver this is an induction over steps: true before the first, and preserved by each.
llvm::Error StepMeaning::checkCarriedOver() {
  for (const CarriedOver &over : carriedOver) {
    if (!over.start || !meanings.contains(over.argument->value.get()))
      continue;
    llvm::Expected<Meaning> wanted = gatherOf(*over.start, versionOf(*module.state(over.state())));
    if (!wanted)
      return wanted.takeError();
    const Segment &left = segment(of(over.future)), &whole = segment(*wanted);
    auto isSame = [](const Slot &a, const Slot &b) { return isSameRange(a, b.offset, b.elements) && a.term == b.term; };
    if (!std::equal(left.slots.begin(), left.slots.end(), whole.slots.begin(), whole.slots.end(), isSame))
      return fault(Fault::staleVersion, *over.start,
                   "the next step takes it for the gather of what state " + symbolText('@', over.state()) +
                       " holds then, but that is another version");
  }
  return llvm::Error::success();
}

llvm::Error StepMeaning::read(const Function &function) {
  results.clear();
  taps.clear();
  tapped.clear();
  if (llvm::Error error = beginRepeated(function))
    return error;
  for (const Argument &argument : function.arguments())
    if (llvm::Error error = readArgument(argument))
      return error;
  for (Node *node : function)
    if (llvm::Error error = readNode(*node))
      return error;
  if (llvm::Error error = finishRepeated())
    return error;
  return checkReplicas(function);
}

// ---- nodes

llvm::Error StepMeaning::readNode(const Node &node) {
  switch (node.op()) {
  case Op::free: return llvm::Error::success();
  case Op::copy:
  case Op::offloadStart:
  case Op::reloadStart:
  case Op::wait: set(node, of(node.operand(0))); return llvm::Error::success();
  case Op::read: readState(node); return llvm::Error::success();
  case Op::write: return readWrite(node);
  case Op::tap: return readTap(node);
  case Op::stash: readStash(node); return llvm::Error::success();
  case Op::unstash: return readUnstash(node);
  case Op::view: return readView(node);
  case Op::pack: return readPack(node);
  case Op::takeShard: return readTakeShard(node);
  case Op::allGather:
  case Op::allGatherStart: return readGather(node);
  case Op::reduceScatter:
  case Op::reduceScatterStart:
  case Op::allReduce:
  case Op::allReduceStart: return readReduction(node);
  case Op::gatherRows: return readGatherRows(node);
  case Op::scatterRows: return readScatterRows(node);
  case Op::squareSum: return readSquareSum(node);
  case Op::ret: readReturn(node); return llvm::Error::success();
  default: break;
  }
  if (addsToAccumulator(node))
    return readAccumulation(node);
  bool onSegment = infoOf(node).has(inPlace) && of(node.operand(0)).segment >= 0;
  return onSegment ? readOptimizer(node) : readTensorNode(node);
}

void StepMeaning::readState(const Node &node) {
  set(node, versionOf(*module.state(node.get<StateAttributes>().state.name)));
}

/// A gradient is passed on by name, like results.
void StepMeaning::readStash(const Node &node) {
  llvm::StringRef segment = node.get<StateAttributes>().state.name;
  stashes[segment] = of(node.operand(0));
  results.push_back({(names::gradientPrefix + segment).str(), of(node.operand(0))});
}

llvm::Error StepMeaning::readUnstash(const Node &node) {
  llvm::StringRef segment = node.get<StateAttributes>().state.name;
  auto found = stashes.find(segment);
  if (found == stashes.end())
    return fault(Fault::gradientContribution, node, "the step has not stashed " + symbolText('@', segment));
  DType dtype = node.result()->type().dtype();
  for (const Slot &slot : this->segment(found->second).slots)
    if (terms[slot.term].type.dtype() != dtype)
      return fault(Fault::differentValue, node,
                   "the step has stashed " + nameOf(terms[slot.term].type.dtype()).str() + ", not " +
                       nameOf(dtype).str());
  set(node, found->second);
  return llvm::Error::success();
}

void StepMeaning::readReturn(const Node &node) {
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    results.push_back({node.get<ReturnAttributes>().names[i], of(node.operand(i))});
    carried[results.back().name] = results.back().meaning;
  }
}

/// The dtype that a node casts its only operand to, also as a loop of one step; nullopt for other nodes.
static std::optional<DType> castBy(const Node &node) {
  bool isLoop = node.op() == Op::fused && node.operandCount() == 1 && node.resultCount() == 1;
  const Expression *body = isLoop ? &node.get<FusedAttributes>().body : nullptr;
  bool casts = node.op() == Op::cast || (body && body->steps.size() == 1 && body->steps[0].op == Op::cast &&
                                         body->yields[0] == body->operandCount);
  return casts ? std::optional(node.result()->type().dtype()) : std::nullopt;
}

/// A segment is cast parameter by parameter.
void StepMeaning::readCast(const Node &node, DType dtype) {
  Segment cast = segment(of(node.operand(0)));
  for (Slot &slot : cast.slots)
    slot.term = terms.cast(slot.term, dtype);
  set(node, add(std::move(cast)));
}

llvm::Error StepMeaning::readTensorNode(const Node &node) {
  if (std::optional<DType> dtype = castBy(node); dtype && of(node.operand(0)).segment >= 0) {
    readCast(node, *dtype);
    return llvm::Error::success();
  }
  const bool isLoop = node.op() == Op::fused || isElementwise(node);
  if (isLoop && llvm::any_of(node.operands(), [&](const Value *operand) { return of(operand).segment >= 0; }))
    return readLoop(node);
  llvm::SmallVector<TermId, 8> operands;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    operands.push_back(of(node.operand(i)).term);
    if (operands.back() < 0)
      return fault(Fault::shardBounds, node,
                   textOf(node.operand(i)) + " is a flat range of several parameters, not one tensor");
  }
  llvm::SmallVector<TermId, 2> values = terms.apply(node, operands);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    meanings[node.result(i)] = {values[i], -1};
  return llvm::Error::success();
}

/// Loops over entire regions with equal layout, parameter by parameter. Scalars are the same for all.
llvm::Error StepMeaning::readLoop(const Node &node) {
  const Segment *layout = nullptr;
  for (const Value *operand : node.operands()) {
    const Meaning meaning = of(operand);
    if (meaning.segment < 0) {
      if (meaning.term >= 0 && operand->type().elements() == 1)
        continue;
      return fault(Fault::shardBounds, node,
                   textOf(operand) + " is not a flat range of parameters like the other operands");
    }
    const Segment &run = segment(meaning);
    auto isAlike = [](const Slot &a, const Slot &b) { return isSameRange(a, b.offset, b.elements); };
    if (layout &&
        !(layout->split == run.split && layout->elements == run.elements &&
          std::equal(layout->slots.begin(), layout->slots.end(), run.slots.begin(), run.slots.end(), isAlike)))
      return fault(Fault::shardBounds, node, textOf(operand) + " is laid out otherwise than the other operands");
    layout = layout ? layout : &run; // the results have the shapes of the first operand
  }
  std::vector<Segment> results(node.resultCount(),
                               Segment{.split = layout->split, .elements = layout->elements, .slots = layout->slots});
  for (size_t slot = 0; slot < layout->slots.size(); ++slot) {
    const Shape shape(terms[layout->slots[slot].term].type.shape());
    llvm::SmallVector<TermId, 8> operands;
    for (const Value *operand : node.operands())
      operands.push_back(of(operand).segment < 0 ? of(operand).term
                                                 : terms.reshape(segment(of(operand)).slots[slot].term, shape, &node));
    llvm::SmallVector<TermId, 2> values = terms.loop(node, operands, shape);
    for (unsigned i = 0; i < node.resultCount(); ++i)
      results[i].slots[slot].term = values[i];
  }
  for (unsigned i = 0; i < node.resultCount(); ++i)
    meanings[node.result(i)] = add(std::move(results[i]));
  return llvm::Error::success();
}

// ---- end of function

bool StepMeaning::isLaidOut(const Segment &segment, const State &state) const {
  const State &layout = *layoutOf(state);
  auto isInPlace = [](const Slot &slot, const SegmentSlot &home) {
    return isSameRange(slot, home.offsetElements, home.elements);
  };
  return segment.split == splitOf(state) && segment.elements == layout.paddedElements &&
         std::equal(segment.slots.begin(), segment.slots.end(), layout.slots.begin(), layout.slots.end(), isInPlace);
}

llvm::Error StepMeaning::recordSegment(const Node &node, const State &state, const Segment &segment) {
  const State &layout = *layoutOf(state);
  if (!isLaidOut(segment, state))
    return fault(Fault::shardBounds, node, "what is written is laid out otherwise than the state");
  if (state.role == StateRole::replica) // copy of its segment's value: compared at the end of the function
    return llvm::Error::success();
  llvm::StringRef field = state.role == StateRole::segment ? "" : llvm::StringRef(state.field);
  for (size_t i = 0; i < segment.slots.size(); ++i)
    written[{layout.slots[i].parameter, field.str()}] = segment.slots[i].term;
  return llvm::Error::success();
}

llvm::Error StepMeaning::readWrite(const Node &node) {
  const State &state = *module.state(node.get<StateAttributes>().state.name);
  Meaning meaning = of(node.operand(0));
  if (state.role == StateRole::accumulator)
    return writeAccumulator(node, state, meaning);
  if (isRepeated && state.role == StateRole::buffer)
    return writeStatistics(node, state, meaning);
  if (isRepeated)
    return fault(Fault::staleVersion, node, "a micro-step writes a state that the next one finds changed");
  current[&state] = meaning;
  writers[&state] = &node;
  bool isSegment = layoutOf(state) != nullptr;
  if (isSegment != (meaning.segment >= 0))
    return fault(Fault::shardBounds, node, "what is written is laid out otherwise than the state");
  if (isSegment)
    return recordSegment(node, state, segment(meaning));
  written[logicalName(state)] = meaning.term;
  return llvm::Error::success();
}

/// At the end of each function, a replica must hold its segment's value, rounded to its own type.
llvm::Error StepMeaning::checkReplicas(const Function &function) {
  for (const State &state : module.states) {
    const State *owner = state.role == StateRole::replica ? layoutOf(state) : nullptr;
    if (!owner || (!current.contains(&state) && !current.contains(owner)))
      continue;
    // Both have the owner's slots: entryOf and recordSegment ensure that.
    const Segment &replica = segment(versionOf(state)), &shard = segment(versionOf(*owner));
    for (size_t i = 0; i < shard.slots.size(); ++i) {
      if (replica.slots[i].term == terms.cast(shard.slots[i].term, state.type.dtype()))
        continue;
      std::string message = "replica " + symbolText('@', state.name) + " does not hold the new version of '" +
                            owner->slots[i].parameter + "' that segment " + symbolText('@', owner->name) + " holds";
      const Node *writer = writers.lookup(&state) ? writers.lookup(&state) : writers.lookup(owner);
      return writer ? fault(Fault::staleVersion, *writer, message) : fault(Fault::staleVersion, function, message);
    }
  }
  return llvm::Error::success();
}

llvm::Error StepMeaning::readTap(const Node &node) {
  if (node.get<TapAttributes>().part > 0)
    return readTapOfParts(node);
  Meaning meaning = of(node.operand(0));
  if (meaning.term < 0)
    return fault(Fault::shardBounds, node, "a flat range of several parameters is tapped, not one tensor");
  taps.push_back({node.get<TapAttributes>().parameter.name, meaning.term, &node});
  return llvm::Error::success();
}

} // namespace fsdpc::check
