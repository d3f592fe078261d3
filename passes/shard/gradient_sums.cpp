#include "passes/shard/gradient_sums.h"

#include "ir/ops/attributes.h"
#include "passes/shard/placement.h"
#include "passes/support/precision.h"

namespace fsdpc {

namespace {

Value *named(Value *value, const llvm::Twine &name) {
  value->setName(name.str());
  return value;
}

/// The summand in f32, before it is rounded to the type that is sent.
Value *beforeRounding(Builder &builder, Value *summand, DType dtype) {
  const Node *cast = summand->definer();
  bool isCast = cast && cast->op() == Op::cast && cast->operand(0)->type().dtype() == dtype;
  return isCast ? cast->operand(0) : builder.cast(summand, dtype);
}

} // namespace

GradientSums::GradientSums(const Module &module, const ShardedStates &states, Accumulators &accumulators,
                           const PipelineOptions &options)
    : module(module), states(states), accumulators(accumulators), sumsRanksFirst(options.sumsRanksFirst) {
  for (const Node *node : *module.function(FunctionKind::update))
    readsLowPrecision |= infoOf(*node).has(inPlace) && isHalf(node->operand(1)->type().dtype());
}

Value *GradientSums::packed(Builder &builder, const State &segment, const Local &local, bool isRounded) const {
  PackAttributes attributes{{}, segment.paddedElements};
  llvm::SmallVector<Value *, 8> parts;
  for (const SegmentSlot &slot : segment.slots) {
    Value *part = local.others.lookup(slot.parameter);
    parts.push_back(isRounded ? part : beforeRounding(builder, part, segment.type.dtype()));
    attributes.offsets.push_back(slot.offsetElements);
  }
  return named(builder.create(Op::pack, parts, attributes)->result(), names::gradientPrefix + segment.name + ".full");
}

/// The axis of the ranks that hold the same shard of a segment's gradients. Empty if no other rank does.
std::string GradientSums::replicasOf(const State &segment) const {
  return axisOfReplicas(module, segment.over.empty() ? Split::none : placementOf(states.unitOf(segment)).split);
}

/// True if the sum over all micro-steps is sent instead of each summand. Unsharded segments need no extra memory for
/// that.
bool GradientSums::isSentLater(const State &segment) const {
  return !sumsRanksFirst && (segment.over.empty() || keepsGradients(states.unitOf(segment)));
}

/// Reduces over the ranks that split the segment. Each rank keeps its shard.
Value *GradientSums::scattered(Builder &builder, const State &segment, Value *sum) const {
  if (segment.over.empty())
    return sum;
  return named(builder.create(Op::reduceScatter, {sum}, overAxis(module, segment.over))->result(),
               names::gradientPrefix + segment.name + (replicasOf(segment).empty() ? "" : ".replica"));
}

/// This rank's shard of the gradient of a row table: the rows that the ranks have looked up are exchanged, where their
/// derivatives are computed.
Value *GradientSums::scatteredRows(const State &segment, Node &sum, bool sumsReplicas) const {
  Builder atSum(*sum.function(), &sum);
  atSum.inherit(sum);
  auto gathered = [&](Value *value) {
    Value *flat = atSum.reshape(value, {value->type().elements()});
    return atSum.create(Op::allGather, {flat}, overAxis(module, segment.over))->result();
  };
  Value *indices = gathered(sum.operand(0)), *updates = gathered(sum.operand(1));
  Node *scatter = atSum.create(Op::scatterRows, {indices, updates},
                               RowTables::attributesOf(module, segment, sum.get<ScatterAddAttributes>().accumulateF32));
  Value *share =
      named(scatter->result(), names::gradientPrefix + segment.name + (replicasOf(segment).empty() ? "" : ".replica"));
  return sumsReplicas ? summedOverReplicas(atSum, segment, share) : share;
}

/// Sums the shard over the ranks that hold the same one.
Value *GradientSums::summedOverReplicas(Builder &builder, const State &segment, Value *share) const {
  std::string replicas = replicasOf(segment);
  if (replicas.empty())
    return share;
  return named(builder.create(Op::allReduce, {share}, overAxis(module, replicas))->result(),
               names::gradientPrefix + segment.name);
}

Value *GradientSums::reduced(Builder &builder, const State &segment, const Local &local) const {
  builder.setSection({module.unitIndex(segment.unit), Phase::backward});
  Value *rows = nullptr, *sum = nullptr;
  if (Value *lookup = local.lookups.lookup(segment.slots.front().parameter))
    rows = scatteredRows(segment, *lookup->definer(), /*sumsReplicas=*/true);
  if (!rows || local.others.contains(segment.slots.front().parameter))
    sum = summedOverReplicas(builder, segment,
                             scattered(builder, segment, packed(builder, segment, local, /*isRounded=*/true)));
  return !rows ? sum : !sum ? rows : named(builder.add(sum, rows), names::gradientPrefix + segment.name);
}

void GradientSums::accumulate(Builder &builder, const State &segment, const Local &local) const {
  builder.setSection({module.unitIndex(segment.unit), Phase::backward});
  if (Value *lookup = local.lookups.lookup(segment.slots.front().parameter)) {
    assert(!local.others.contains(segment.slots.front().parameter) && "only steps of one micro-step split gradients");
    accumulators.add(builder, accumulators.of(segment), scatteredRows(segment, *lookup->definer(), sumsRanksFirst));
    return;
  }
  Value *sum = packed(builder, segment, local, /*isRounded=*/!isSentLater(segment));
  if (!isSentLater(segment))
    sum = scattered(builder, segment, sum);
  if (sumsRanksFirst)
    sum = summedOverReplicas(builder, segment, sum);
  accumulators.add(builder, accumulators.of(segment), sum);
}

Value *GradientSums::accumulated(Builder &builder, const State &segment) const {
  const State &accumulator = accumulators.of(segment);
  Value *sum = named(builder.readState(accumulator), accumulator.name);
  if (sumsRanksFirst || (!isSentLater(segment) && replicasOf(segment).empty()))
    return sum;
  sum = builder.cast(sum, states.reducedType(segment));
  return summedOverReplicas(builder, segment, isSentLater(segment) ? scattered(builder, segment, sum) : sum);
}

Value *GradientSums::gradient(Builder &builder, const State &segment) const {
  if (accumulators.areNeeded())
    return accumulated(builder, segment);
  return builder.function().addArgument(ArgumentKind::carry, (names::gradientPrefix + segment.name).str(),
                                        segment.type.withDType(states.reducedType(segment)));
}

Value *GradientSums::operand(Builder &builder, const State &segment) const {
  Value *value = gradient(builder, segment);
  return readsLowPrecision ? value : builder.cast(value, segment.type.dtype());
}

} // namespace fsdpc
