// The meaning of nodes over segments: views, packs, gathers, reductions, optimizers.
#include "ir/ops/attributes.h"
#include "passes/check/fault.h"
#include "passes/check/meanings.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::check {

namespace {

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

} // namespace

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
  if (!segment(operand).isUnsharded())
    return fault(Fault::shardBounds, node, "it shows one rank's shard, which has not been gathered");
  int64_t offset = node.get<ViewAttributes>().offset;
  const Slot *slot = findSlot(segment(operand), offset, type.elements());
  if (!slot)
    return fault(Fault::shardBounds, node,
                 "no parameter is at elements " + llvm::Twine(offset) + " to " + llvm::Twine(offset + type.elements()) +
                     " of the segment");
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
                   textOf(node.operand(i)) + " is a flat range of several parameters, not one tensor");
    segment.slots.push_back({pack.offsets[i], node.operand(i)->type().elements(), part.term});
  }
  set(node, add(std::move(segment)));
  return llvm::Error::success();
}

llvm::Error StepMeaning::readTakeShard(const Node &node) {
  Meaning operand = of(node.operand(0));
  if (operand.segment < 0 || !segment(operand).isUnsharded())
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is not an unsharded segment");
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
  if (operand.segment < 0 || (scatters && !segment(operand).isUnsharded()))
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is not an unsharded segment of gradients");
  Segment sum = segment(operand);
  // Ranks that hold different parts cannot be summed.
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

/// Elements of gradients outside of slots are zero: gradients come from packs.
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

} // namespace fsdpc::check
