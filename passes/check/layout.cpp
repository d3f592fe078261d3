#include "passes/check/layout.h"

#include "passes/check/fault.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/bit.h"
#include <map>

namespace fsdpc::check {

namespace {

class LayoutCheck {
public:
  LayoutCheck(const Module &train, const Module &planned) : train(train), planned(planned) {}
  llvm::Error run();

private:
  llvm::Error checkSegment(const State &segment);
  llvm::Error checkSlots(const State &segment);
  llvm::Error checkReplica(const State &replica);
  llvm::Error checkOptimizer(const State &state);
  llvm::Error checkAccumulator(const State &state);
  llvm::Error checkSingle(const State &state, const State *counterpart);
  llvm::Error checkCounterparts();
  static llvm::Error wrong(const State &state, const llvm::Twine &message) {
    return fault(Fault::shardBounds, nameOf(state.role) + " state " + symbolText('@', state.name) + " " + message);
  }
  static bool sameInitialValue(const State &a, const State &b) {
    return llvm::bit_cast<uint64_t>(a.initialValue) == llvm::bit_cast<uint64_t>(b.initialValue);
  }

  const Module &train, &planned;
  llvm::StringMap<const State *> homes;                                         ///< the segment of each parameter
  std::map<std::pair<std::string, std::string>, const State *> optimizerStates; ///< of the planned module
};

llvm::Error LayoutCheck::checkSlots(const State &segment) {
  int64_t end = 0;
  for (const SegmentSlot &slot : segment.slots) {
    const State *parameter = train.state(slot.parameter);
    if (!parameter || parameter->role != (segment.role == StateRole::buffer ? StateRole::buffer : StateRole::parameter))
      return wrong(segment, "has a slot for '" + slot.parameter + "', which is no " +
                                (segment.role == StateRole::buffer ? "buffer" : "parameter") + " of the train module");
    if (slot.elements != parameter->type.elements() || segment.type.dtype() != parameter->type.dtype())
      return wrong(segment, "has " + llvm::Twine(slot.elements) + " elements of " + nameOf(segment.type.dtype()) +
                                " for '" + slot.parameter + "', which is " + toString(parameter->type));
    if (slot.offsetElements < end || slot.offsetElements > segment.paddedElements - slot.elements)
      return wrong(segment, "has the slot of '" + slot.parameter + "' outside, or over the slot before it");
    end = slot.offsetElements + slot.elements;
    if (!homes.try_emplace(slot.parameter, &segment).second)
      return wrong(segment, "holds '" + slot.parameter + "', which another segment holds too");
  }
  return llvm::Error::success();
}

llvm::Error LayoutCheck::checkSegment(const State &segment) {
  const MeshAxis *axis = segment.over.empty() ? nullptr : planned.axis(segment.over);
  if (!segment.over.empty() && !axis)
    return wrong(segment, "is split over mesh axis " + symbolText('@', segment.over) + ", which does not exist");
  int64_t ranks = axis ? axis->size : 1, whole;
  if (segment.type.rank() != 1 || __builtin_mul_overflow(segment.type.elements(), ranks, &whole) ||
      whole != segment.paddedElements)
    return wrong(segment, "is " + toString(segment.type) + " on each of " + llvm::Twine(ranks) +
                              " ranks, which does not make " + llvm::Twine(segment.paddedElements) + " elements");
  return checkSlots(segment);
}

llvm::Error LayoutCheck::checkReplica(const State &replica) {
  const State *owner = planned.state(replica.owner);
  if (!owner || owner->role != StateRole::segment)
    return wrong(replica, "belongs to '" + replica.owner + "', which is no segment");
  DType dtype = replica.type.dtype();
  bool isRounded = isFloat(dtype) && byteSize(dtype) == 2;
  if (dtype != owner->type.dtype() && !isRounded)
    return wrong(replica, "is " + toString(replica.type) + ", its segment " + toString(owner->type));
  bool isUnsharded = replica.over.empty() && replica.type.shape() == llvm::ArrayRef<int64_t>(owner->paddedElements);
  bool isAlike = replica.over == owner->over && replica.type.shape() == owner->type.shape();
  if (!(isUnsharded || isAlike) || replica.paddedElements != owner->paddedElements || replica.slots != owner->slots)
    return wrong(replica, "is not laid out as its segment " + symbolText('@', owner->name) + ", sharded or unsharded");
  return llvm::Error::success();
}

/// Checks that it starts as zeros and is for a scalar or for the gradients of a segment, unsharded or split like it.
llvm::Error LayoutCheck::checkAccumulator(const State &state) {
  if (llvm::bit_cast<uint64_t>(state.initialValue) != 0)
    return wrong(state, "does not begin with zeros");
  if (state.owner.empty())
    return state.type.isScalar() && state.over.empty() ? llvm::Error::success()
                                                       : wrong(state, "is of no segment, and no number");
  const State *owner = planned.state(state.owner);
  if (!owner || owner->role != StateRole::segment)
    return wrong(state, "belongs to '" + state.owner + "', which is no segment");
  bool isUnsharded = state.over.empty() && state.type.shape() == llvm::ArrayRef<int64_t>(owner->paddedElements);
  bool isAlike = state.over == owner->over && state.type.shape() == owner->type.shape();
  if (state.type.dtype() != owner->type.dtype() || !(isUnsharded || isAlike))
    return wrong(state, "is not laid out as its segment " + symbolText('@', owner->name) + ", sharded or unsharded");
  return llvm::Error::success();
}

llvm::Error LayoutCheck::checkOptimizer(const State &state) {
  const State *owner = planned.state(state.owner);
  if (!owner || owner->role != StateRole::segment)
    return wrong(state, "belongs to '" + state.owner + "', which is no segment");
  if (!(state.type.shape() == owner->type.shape()))
    return wrong(state, "is " + toString(state.type) + ", its segment " + toString(owner->type));
  if (!optimizerStates.try_emplace({state.owner, state.field}, &state).second)
    return wrong(state, "is a second " + state.field + " of '" + state.owner + "'");
  return llvm::Error::success();
}

llvm::Error LayoutCheck::checkSingle(const State &state, const State *counterpart) {
  if (!counterpart)
    return wrong(state, "has no counterpart in the planned module");
  if (!(counterpart->type.dtype() == state.type.dtype()) || !sameInitialValue(state, *counterpart))
    return wrong(state, "has another element type or initial value in the planned module");
  return llvm::Error::success();
}

llvm::Error LayoutCheck::checkCounterparts() {
  for (const State &state : train.states) {
    const State *counterpart = planned.state(state.name);
    if (state.role == StateRole::parameter || state.role == StateRole::buffer) {
      if (!homes.contains(state.name))
        return wrong(state, "is in no segment");
      continue;
    }
    if (state.role == StateRole::optimizer) {
      const State *segment = homes.lookup(state.owner);
      auto found = optimizerStates.find({segment ? segment->name : "", state.field});
      counterpart = found == optimizerStates.end() ? nullptr : found->second;
    } else if (counterpart && (counterpart->role != state.role || !(counterpart->type == state.type))) {
      return wrong(state, "has another role or type in the planned module");
    }
    if (llvm::Error error = checkSingle(state, counterpart))
      return error;
    if (state.role == StateRole::scalar && (state.owner != counterpart->owner || state.factor != counterpart->factor))
      return wrong(state, "has another owner or factor in the planned module");
  }
  return llvm::Error::success();
}

llvm::Error LayoutCheck::run() {
  for (const State &state : planned.states)
    if (state.isFlat() && state.role != StateRole::replica)
      if (llvm::Error error = checkSegment(state))
        return error;
  for (const State &state : planned.states)
    if (state.role == StateRole::accumulator)
      if (llvm::Error error = checkAccumulator(state))
        return error;
  for (const State &state : planned.states) {
    bool follows = state.role == StateRole::optimizer || state.role == StateRole::replica;
    if (!follows)
      continue;
    if (llvm::Error error = state.role == StateRole::replica ? checkReplica(state) : checkOptimizer(state))
      return error;
  }
  return checkCounterparts();
}

} // namespace

llvm::Error checkLayout(const Module &train, const Module &planned) { return LayoutCheck(train, planned).run(); }

} // namespace fsdpc::check
