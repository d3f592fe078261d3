#include "passes/shard/sharded_states.h"

#include "ir/ops/attributes.h"
#include "passes/shard/placement.h"
#include "passes/shard/segments.h"

namespace fsdpc {

namespace {

bool isReadInBackward(const Node &read) {
  for (const Use *use = read.result()->uses(); use; use = use->next()) {
    const Node &user = *use->user();
    bool isRead = user.op() == Op::cast ? isReadInBackward(user) : user.schedule.saving == Saving::recompute;
    if (isRead || user.section.phase == Phase::backward)
      return true;
  }
  return false;
}

/// The 16-bit type that every use of the parameter rounds it to; nullopt if one use does not.
std::optional<DType> roundedType(const Node &read) {
  std::optional<DType> type;
  for (const Use *use = read.result()->uses(); use; use = use->next()) {
    if (use->user()->op() != Op::cast)
      return std::nullopt;
    DType used = use->user()->result()->type().dtype();
    if (!isFloat(used) || byteSize(used) != 2 || (type && *type != used))
      return std::nullopt;
    type = used;
  }
  return type;
}

} // namespace

void ShardedStates::add(const OptimizerLayout &layout, Accumulators &accumulators, RunningStatistics &statistics) {
  collectRounded();
  collectReduced();
  SegmentRequest request{
      reducedIn, readInBackward(), rounded, scalars, tables, options.allGatherBucketBytes, options.reduceBucketBytes};
  for (State &segment : planSegments(module, request)) {
    segment.onHost = unitOf(segment).choices.offload == Offload::params;
    const State &added = module.addState(std::move(segment));
    for (const SegmentSlot &slot : added.slots)
      slots[slot.parameter] = {&added, &slot};
    if (added.trainable)
      addOptimizerStates(added, layout);
    if (added.trainable && accumulators.areNeeded())
      accumulators.addFor(added, unitOf(added));
    addReplica(added);
  }
  statistics.add([&](const State &run, const SegmentSlot &slot) { slots[slot.parameter] = {&run, &slot}; });
}

llvm::StringSet<> ShardedStates::readInBackward() const {
  llvm::StringSet<> names;
  for (const Node *node : *module.function(FunctionKind::microStep))
    if (node->op() == Op::read && isReadInBackward(*node))
      names.insert(node->get<StateAttributes>().state.name);
  return names;
}

/// Collects the types that steps and evaluation round a parameter to, if all uses are rounded.
void ShardedStates::collectRounded() {
  llvm::StringSet<> otherwise;
  for (const std::unique_ptr<Function> &function : module.functions) {
    const FunctionKind kind = function->kind();
    if (kind != FunctionKind::microStep && kind != FunctionKind::evalStep && kind != FunctionKind::predict)
      continue;
    for (const Node *node : *function) {
      if (node->op() != Op::read)
        continue;
      llvm::StringRef name = node->get<StateAttributes>().state.name;
      std::optional<DType> type = roundedType(*node);
      if (type && rounded.try_emplace(name, *type).first->second == *type)
        continue;
      otherwise.insert(name);
    }
  }
  for (const auto &entry : otherwise)
    rounded.erase(entry.getKey());
}

void ShardedStates::collectReduced() {
  const Node &ret = *module.function(FunctionKind::microStep)->returnNode();
  const std::vector<std::string> &names = ret.get<ReturnAttributes>().names;
  for (size_t i = 0; i < names.size(); ++i)
    if (llvm::StringRef parameter = names[i]; parameter.consume_front(names::gradientPrefix))
      reducedIn[parameter] = ret.operand(static_cast<unsigned>(i))->type().dtype();
}

void ShardedStates::addOptimizerStates(const State &segment, const OptimizerLayout &layout) {
  for (const std::string &field : layout.fields) {
    State state = optimizerState(segment.name, segment.type, field, layout);
    state.onHost = unitOf(segment).choices.offload != Offload::none;
    module.addState(std::move(state));
  }
}

void ShardedStates::addReplica(const State &segment) {
  auto found = rounded.find(segment.slots.front().parameter);
  DType usedIn = found == rounded.end() ? segment.type.dtype() : found->second;
  bool isUnsharded = !segment.over.empty() && placementOf(unitOf(segment)).copy == UnshardedCopy::always;
  if (!isUnsharded && usedIn == segment.type.dtype())
    return;
  State state;
  state.name =
      segment.name + (usedIn == segment.type.dtype() ? "" : "." + nameOf(usedIn).str()) + (isUnsharded ? ".full" : "");
  state.role = StateRole::replica;
  state.type = Type(usedIn, {isUnsharded ? segment.paddedElements : segment.type.elements()});
  state.over = isUnsharded ? "" : segment.over;
  state.owner = segment.name;
  state.unit = segment.unit;
  state.paddedElements = segment.paddedElements;
  state.trainable = segment.trainable;
  state.slots = segment.slots;
  state.onHost = segment.onHost && !isUnsharded;
  replicas[segment.name] = &module.addState(std::move(state));
}

const State &ShardedStates::sourceOf(const Node &read, const State &segment) const {
  const State *replica = replicaOf(segment);
  bool fits = replica && (replica->type.dtype() == segment.type.dtype() || roundedType(read) == replica->type.dtype());
  return fits ? *replica : segment;
}

void ShardedStates::dropParameterStates() {
  std::deque<State> kept;
  for (State &state : module.states) {
    bool perParameter = state.role == StateRole::parameter || (state.role == StateRole::buffer && !state.isFlat()) ||
                        (state.role == StateRole::optimizer && module.parameter(state.owner));
    if (!perParameter)
      kept.push_back(std::move(state));
  }
  module.replaceStates(std::move(kept));
}

} // namespace fsdpc
