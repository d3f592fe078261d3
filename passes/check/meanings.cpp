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

// ---- symbols
// ----------------------------------------------------------------------------------------------------------------

Meaning StepMeaning::add(Segment segment) {
  segments.push_back(std::move(segment));
  return {-1, static_cast<int32_t>(segments.size()) - 1};
}

const State *StepMeaning::layoutOf(const State &state) const {
  if (state.role == StateRole::segment)
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

RankGroup StepMeaning::groupOf(const Node &node) const {
  return RankGroup::of(module.axis(node.get<CollectiveAttributes>().over.name));
}

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

/// With checkCarriedOver this is an induction over steps: true before the first, and from each to the next.
llvm::Error StepMeaning::checkCarriedOver() {
  for (const CarriedOver &over : carriedOver) {
    if (!over.start || !meanings.contains(over.argument->value.get()))
      continue;
    llvm::Expected<Meaning> wanted = gatherOf(*over.start, versionOf(*module.state(over.state())));
    if (!wanted)
      return wanted.takeError();
    const Segment &left = segment(of(over.future)), &whole = segment(*wanted);
    auto isSame = [](const Slot &a, const Slot &b) { return isSameRun(a, b.offset, b.elements) && a.term == b.term; };
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
// ------------------------------------------------------------------------------------------------------------------

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

/// A gradient is handed over by name, as results are.
void StepMeaning::readStash(const Node &node) {
  llvm::StringRef segment = node.get<StateAttributes>().state.name;
  stashes[segment] = of(node.operand(0));
  results.push_back({("grad." + segment).str(), of(node.operand(0))});
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

/// The dtype that a node casts its only operand to, be it one loop of one step; nullopt for other nodes.
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

llvm::Error StepMeaning::readView(const Node &node) {
  Meaning operand = of(node.operand(0));
  const Type &type = node.result()->type();
  if (operand.segment < 0) {
    bool whole = operand.term >= 0 && type.elements() == node.operand(0)->type().elements();
    if (!whole)
      return readTensorNode(node);
    set(node, {terms.reshape(operand.term, type.shape(), &node), -1});
    return llvm::Error::success();
  }
  if (!segment(operand).isWhole())
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

llvm::Error StepMeaning::readPack(const Node &node) {
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

llvm::Error StepMeaning::readTakeShard(const Node &node) {
  Meaning operand = of(node.operand(0));
  if (operand.segment < 0 || !segment(operand).isWhole())
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is no whole segment");
  Segment part = segment(operand);
  part.split = groupOf(node);
  set(node, add(std::move(part)));
  return llvm::Error::success();
}

llvm::Error StepMeaning::readGather(const Node &node) {
  return gatherOf(node, of(node.operand(0))).moveInto(meanings[node.result()]);
}

llvm::Expected<Meaning> StepMeaning::gatherOf(const Node &node, Meaning operand) {
  RankGroup group = groupOf(node);
  if (operand.segment < 0 || !(segment(operand).split == group))
    return fault(Fault::shardBounds, node,
                 textOf(node.operand(0)) + " is no part of a segment that is split over these ranks");
  Segment whole = segment(operand);
  if (node.result()->type().elements() != whole.elements)
    return fault(Fault::shardBounds, node, "the shards have " + llvm::Twine(whole.elements) + " elements together");
  for (const Slot &slot : whole.slots)
    if (!terms.isSameOnRanksOf(slot.term, group))
      return fault(Fault::gradientContribution, node,
                   "the parts do not belong together: every rank has another " + terms.describe(slot.term));
  whole.split = {};
  return add(std::move(whole));
}

llvm::Error StepMeaning::readReduction(const Node &node) {
  Meaning operand = of(node.operand(0));
  RankGroup group = groupOf(node);
  bool scatters = node.op() == Op::reduceScatter || node.op() == Op::reduceScatterStart;
  if (operand.segment < 0 && operand.term >= 0 && !scatters) {
    set(node, {terms.batchSum(operand.term, group, &node), -1});
    return llvm::Error::success();
  }
  if (operand.segment < 0 || (scatters && !segment(operand).isWhole()))
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is no whole segment of gradients");
  Segment sum = segment(operand);
  // Ranks that hold different parts have nothing to add up.
  if (!group.isApartFrom(sum.split))
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is split over the ranks of this sum");
  for (Slot &slot : sum.slots)
    slot.term = terms.batchSum(slot.term, group, &node);
  if (scatters)
    sum.split = group;
  set(node, add(std::move(sum)));
  return llvm::Error::success();
}

/// The operands of an optimizer node for one parameter of its segment, all in the parameter's shape.
llvm::Expected<llvm::SmallVector<TermId, 8>> StepMeaning::operandsOfSlot(const Node &node, const Segment &first,
                                                                         size_t index) {
  const Slot &slot = first.slots[index];
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
    bool isAlike = other.split == first.split && other.elements == first.elements;
    if (!isAlike || (!found && touches(other, slot.offset, slot.elements)))
      return fault(Fault::shardBounds, node, textOf(node.operand(i)) + " is laid out otherwise than the first operand");
    if (!found)
      return fault(Fault::gradientContribution, node,
                   textOf(node.operand(i)) + " has nothing for " + terms.describe(slot.term));
    operands.push_back(terms.reshape(found->term, shape, &node));
  }
  return operands;
}

llvm::Error StepMeaning::readOptimizer(const Node &node) {
  const Segment &parameters = segment(of(node.operand(0)));
  std::vector<Segment> next(node.resultCount(), parameters);
  for (size_t i = 0; i < parameters.slots.size(); ++i) {
    llvm::Expected<llvm::SmallVector<TermId, 8>> operands = operandsOfSlot(node, parameters, i);
    if (!operands)
      return operands.takeError();
    llvm::SmallVector<TermId, 4> values = terms.applyOptimizer(node, *operands);
    for (unsigned k = 0; k < node.resultCount(); ++k)
      next[k].slots[i].term = values[k];
  }
  for (unsigned k = 0; k < node.resultCount(); ++k)
    meanings[node.result(k)] = add(std::move(next[k]));
  return llvm::Error::success();
}

/// What no slot covers is zero in gradients: they come from packs.
llvm::Error StepMeaning::readSquareSum(const Node &node) {
  llvm::SmallVector<TermId, 16> tensors;
  std::optional<RankGroup> split;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    Meaning operand = of(node.operand(i));
    if (operand.segment < 0 && operand.term < 0)
      return fault(Fault::shardBounds, node, textOf(node.operand(i)) + " is no tensor");
    RankGroup own = operand.segment < 0 ? RankGroup{} : segment(operand).split;
    if (split && !(*split == own))
      return fault(Fault::shardBounds, node,
                   textOf(node.operand(i)) + " is split over other ranks than the operands before it");
    split = own;
    if (operand.segment < 0)
      tensors.push_back(operand.term);
    else
      for (const Slot &slot : segment(operand).slots)
        tensors.push_back(slot.term);
  }
  set(node, {terms.squareSum(tensors, split.value_or(RankGroup{}), &node), -1});
  return llvm::Error::success();
}

// ---- what is left behind
// ----------------------------------------------------------------------------------------------------

bool StepMeaning::isLaidOut(const Segment &segment, const State &state) const {
  const State &layout = *layoutOf(state);
  auto isInPlace = [](const Slot &slot, const SegmentSlot &home) {
    return isSameRun(slot, home.offsetElements, home.elements);
  };
  return segment.split == splitOf(state) && segment.elements == layout.paddedElements &&
         std::equal(segment.slots.begin(), segment.slots.end(), layout.slots.begin(), layout.slots.end(), isInPlace);
}

llvm::Error StepMeaning::recordSegment(const Node &node, const State &state, const Segment &segment) {
  const State &layout = *layoutOf(state);
  if (!isLaidOut(segment, state))
    return fault(Fault::shardBounds, node, "what is written is laid out otherwise than the state");
  if (state.role == StateRole::replica) // another copy of what its segment holds: compared at the end of the function
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

/// A replica holds what its segment holds, rounded to its own type, whenever a function is left.
llvm::Error StepMeaning::checkReplicas(const Function &function) {
  for (const State &state : module.states) {
    const State *owner = state.role == StateRole::replica ? layoutOf(state) : nullptr;
    if (!owner || (!current.contains(&state) && !current.contains(owner)))
      continue;
    // Both are laid out by the owner's slots: entryOf and recordSegment see to that.
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
  Meaning meaning = of(node.operand(0));
  if (meaning.term < 0)
    return fault(Fault::shardBounds, node, "a run of several parameters is tapped, not one tensor");
  taps.push_back({node.get<TapAttributes>().parameter.name, meaning.term, &node});
  return llvm::Error::success();
}

} // namespace fsdpc::check
