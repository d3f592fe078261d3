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

bool isSameRange(const Slot &slot, int64_t offset, int64_t elements) {
  return slot.offset == offset && slot.elements == elements;
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
    return readPiece(node, operand);
  int64_t offset = node.get<ViewAttributes>().offset;
  const Slot *slot = findSlot(segment(operand), offset, type.elements());
  if (!slot)
    return fault(Fault::shardBounds, node,
                 "no parameter is at elements " + llvm::Twine(offset) + " to " + llvm::Twine(offset + type.elements()) +
                     " of the segment");
  set(node, {terms.reshape(slot->term, type.shape(), &node), -1});
  return llvm::Error::success();
}

llvm::Error StepMeaning::readPiece(const Node &node, Meaning shard) {
  bool isGathered = node.result()->hasUses();
  for (const Use *use = node.result()->uses(); use; use = use->next())
    isGathered &= use->user()->op() == Op::allGatherStart;
  if (!isGathered)
    return fault(Fault::shardBounds, node, "it shows one rank's shard, which has not been gathered");
  pieces.push_back({shard.segment, node.get<ViewAttributes>().offset, node.result()->type().elements()});
  set(node, {-1, -1, static_cast<int32_t>(pieces.size()) - 1});
  return llvm::Error::success();
}

llvm::Error StepMeaning::gatherPiece(const Node &node, Piece piece) {
  const Segment &whole = segments[piece.segment];
  if (piece.isOfAllRanks || !(whole.split == groupOf(node)))
    return fault(Fault::shardBounds, node,
                 textOf(node.operand(0)) + " is no piece of a segment that is split over these ranks");
  for (const Slot &slot : whole.slots)
    if (!terms.isSameOnRanksOf(slot.term, whole.split))
      return fault(Fault::gradientContribution, node,
                   "the pieces do not belong together: every rank has another " + terms.describe(slot.term));
  piece.isOfAllRanks = true;
  pieces.push_back(piece);
  set(node, {-1, -1, static_cast<int32_t>(pieces.size()) - 1});
  return llvm::Error::success();
}

/// Parts are tapped in order. When the last one has been, the parameter counts as tapped.
llvm::Error StepMeaning::readTapOfParts(const Node &node) {
  const auto &tap = node.get<TapAttributes>();
  const Meaning meaning = of(node.operand(0));
  const Piece piece = meaning.piece < 0 ? Piece() : pieces[meaning.piece];
  if (!piece.isOfAllRanks || segments[piece.segment].slots.size() != 1 || segments[piece.segment].slots[0].offset != 0)
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is no piece of a single parameter");
  const Segment &whole = segments[piece.segment];
  const int64_t own = whole.elements / whole.split.size;
  Tapped &before = tapped[tap.parameter.name];
  if (tap.from != piece.from || tap.part != piece.elements || tap.every != own || piece.from != before.elements)
    return fault(Fault::shardBounds, node,
                 "it is not what follows the first " + llvm::Twine(before.elements) + " elements of each rank's " +
                     llvm::Twine(own));
  if (before.elements > 0 && before.term != whole.slots[0].term)
    return fault(Fault::differentValue, node, "the parts before it are of another value");
  before = {before.elements + piece.elements, whole.slots[0].term};
  if (before.elements == own)
    taps.push_back({tap.parameter.name, whole.slots[0].term, &node});
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
  if (const Meaning operand = of(node.operand(0)); operand.piece >= 0)
    return gatherPiece(node, pieces[operand.piece]);
  if (const Meaning operand = of(node.operand(0)); operand.segment < 0 && operand.term >= 0) {
    set(node, {terms.ofAllRanks(operand.term, groupOf(node), node), -1});
    return llvm::Error::success();
  }
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
  if (const TermId rows = operand.segment < 0 && scatters ? terms.lookedUp(operand.term, group, node) : -1; rows >= 0) {
    set(node, {rows, -1});
    return llvm::Error::success();
  }
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

/// What a rank answers is only defined as the summand of the sum over the ranks that split the table: lookedUp.
llvm::Error StepMeaning::readGatherRows(const Node &node) {
  const auto &rows = node.get<RowsAttributes>();
  const RankGroup group = groupOf(node);
  const Meaning shard = of(node.operand(0));
  const TermId own = terms.operandOfAllRanks(of(node.operand(1)).term, group);
  if (own < 0)
    return fault(Fault::shardBounds, node, textOf(node.operand(1)) + " is not the indices of all ranks of the table");
  const Segment *table = shard.segment >= 0 ? &segment(shard) : nullptr;
  bool isTable = table && table->split == group && table->elements == rows.padded && table->slots.size() == 1 &&
                 isSameRange(table->slots[0], 0, rows.rows * rows.width);
  if (!isTable)
    return fault(Fault::shardBounds, node, textOf(node.operand(0)) + " is no shard of a table of these rows");
  if (!terms.isSameOnRanksOf(table->slots[0].term, group))
    return fault(Fault::gradientContribution, node, "every rank has another table");
  set(node, {terms.answers(table->slots[0].term, own, rows, group, node), -1});
  return llvm::Error::success();
}

llvm::Error StepMeaning::readScatterRows(const Node &node) {
  const auto &rows = node.get<RowsAttributes>();
  const RankGroup group = groupOf(node);
  const TermId indices = terms.operandOfAllRanks(of(node.operand(0)).term, group);
  const TermId updates = terms.operandOfAllRanks(of(node.operand(1)).term, group);
  if (indices < 0 || updates < 0)
    return fault(Fault::shardBounds, node, "the indices and updates are not those of all ranks of the table");
  const TermId sum = terms.batchSum(terms.addedRows(indices, updates, rows, node), group, &node);
  set(node, add(Segment{.split = group, .elements = rows.padded, .slots = {{0, rows.rows * rows.width, sum}}}));
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
