#include "passes/graph/attention_mask.h"

#include "ir/ops/attention.h"
#include "passes/graph/match.h"
#include "passes/graph/same_elements.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <limits>

namespace fsdpc {

namespace {

// Of a sum that is one mask.
constexpr int maxTerms = 16;

int64_t dimFromEnd(const Type &type, int64_t fromEnd) { return type.rank() < fromEnd ? 1 : type.dim(-fromEnd); }

Shape commonShape(const Type &a, const Type &b) {
  Shape shape;
  for (int64_t fromEnd = std::max(a.rank(), b.rank()); fromEnd > 0; --fromEnd)
    shape.push_back(std::max(dimFromEnd(a, fromEnd), dimFromEnd(b, fromEnd)));
  return shape;
}

/// Zero or a hiding value, selected by the condition.
Value *selectAdditive(const ScoreMask &mask, Value *condition, Builder &builder) {
  Type type = condition->type().withDType(DType::f32);
  Value *zero = builder.constant(type, 0), *fill = builder.constant(type, mask.hidden());
  bool isVisible = mask.kind == ScoreMask::Kind::visibleIfTrue;
  return builder.select(condition, isVisible ? zero : fill, isVisible ? fill : zero);
}

/// The mask in additive form, its leading axes regrouped to `leading`.
Value *additiveMask(const ScoreMask &mask, llvm::ArrayRef<int64_t> leading, Builder &builder) {
  Value *value = belowBroadcasts(mask.value);
  if (mask.kind == ScoreMask::Kind::subtracted)
    value = builder.unary(Op::neg, value);
  else if (mask.selects())
    value = selectAdditive(mask, value, builder);
  llvm::ArrayRef<int64_t> scoresLeading = llvm::ArrayRef<int64_t>(mask.scores).drop_back(2);
  if (scoresLeading == leading || value->type().rank() <= 2)
    return value;
  llvm::ArrayRef<int64_t> own = value->type().shape().drop_back(2);
  Shape matrix(value->type().shape().take_back(2));
  Shape regrouped(leading);
  if (llvm::all_of(own, [](int64_t dim) { return dim == 1; })) {
    regrouped = {1, 1};
  } else if (own != scoresLeading) {
    Shape whole(scoresLeading);
    llvm::append_range(whole, matrix);
    value = builder.broadcast(value, whole);
  }
  llvm::append_range(regrouped, matrix);
  return builder.reshape(value, regrouped);
}

/// The sum of both, each broadcast to the common shape.
Value *addMasks(Value *a, Value *b, Builder &builder) {
  Shape shape = commonShape(a->type(), b->type());
  return builder.add(builder.broadcast(a, shape), builder.broadcast(b, shape));
}

bool isSmall(const Type &mask) { return dimFromEnd(mask, 1) == 1 || dimFromEnd(mask, 2) == 1; }
bool isSmall(const Value *mask) { return isSmall(belowBroadcasts(mask)->type()); }

/// Whether the sum of two masks has a number for each query and key, more of them than either.
bool sumIsLarger(const Value *a, const Value *b) {
  const Type sum = a->type().withShape(commonShape(a->type(), b->type()));
  return !isSmall(sum) && sum.elements() > std::max(a->type().elements(), b->type().elements());
}

/// All factors at once; null if that would take the shape of the scores.
Value *joinFactors(llvm::ArrayRef<VisibilityFactor> factors, Builder &builder) {
  Value *all = nullptr;
  for (const VisibilityFactor &factor : factors) {
    Value *value = factor.isNegated ? builder.unary(Op::logicalNot, factor.value) : factor.value;
    if (!all) {
      all = value;
      continue;
    }
    Shape shape = commonShape(all->type(), value->type());
    all = builder.binary(Op::logicalAnd, builder.broadcast(all, shape), builder.broadcast(value, shape));
  }
  return !all || isSmall(all) ? all : nullptr;
}

/// Documents of the keys of scores [..., queries, keys] as [batch or 1, keys] of attention with these `leading` dims.
/// Null if heads have their own.
Value *documentsOfSamples(Value *documents, llvm::ArrayRef<int64_t> scores, llvm::ArrayRef<int64_t> leading,
                          Builder &builder) {
  llvm::ArrayRef<int64_t> own = documents->type().shape().drop_back(2), ofScores = scores.drop_back(2);
  const bool isOne = llvm::all_of(own, [](int64_t dim) { return dim == 1; });
  const bool isPerSample = ofScores == leading && own.back() == 1, hasOneHead = own == ofScores && leading.back() == 1;
  if (!isOne && !isPerSample && !hasOneHead)
    return nullptr;
  Value *flat = builder.reshape(documents, {isOne ? 1 : leading.front(), documents->type().dim(-1)});
  return builder.cast(flat, DType::i64);
}

class MaskJoiner {
public:
  MaskJoiner(llvm::ArrayRef<int64_t> leading, MaskStructures &structures, AttentionAttributes &attributes,
             Builder &builder)
      : leading(leading), structures(structures), attributes(attributes), builder(builder) {}

  void join(const ScoreMask &mask);
  void addWhole(const ScoreMask &mask);
  /// Whether attributes and sum hide alike what several masks, or both parts of one, hide at once. It matters to
  /// queries that see no key.
  bool isExact() const;
  bool masksHidden() const { return bothTerms == 0; }

  JoinedMasks joined;

private:
  bool joinTerm(const ScoreMask &mask);
  bool takeStructure(const ScoreMask &mask);
  bool takeBand(const Visibility &visible, const Shape &scores);
  bool takeVisible(const Visibility &visible, const Shape &scores);

  llvm::ArrayRef<int64_t> leading;
  MaskStructures &structures;
  AttentionAttributes &attributes;
  Builder &builder;
  Visibility band; ///< of all masks so far
  int bandTerms = 0, sumTerms = 0, bothTerms = 0;
};

void MaskJoiner::addWhole(const ScoreMask &mask) {
  Value *additive = additiveMask(mask, leading, builder);
  ++sumTerms;
  for (Value *&sum : joined.added)
    if (!sumIsLarger(sum, additive)) {
      sum = addMasks(sum, additive, builder);
      return;
    }
  if (joined.added.size() < AttentionExtras::maxMasks)
    joined.added.push_back(additive);
  else
    joined.added.back() = addMasks(joined.added.back(), additive, builder);
}

bool MaskJoiner::isExact() const {
  return joined.added.empty() || std::isinf(attributes.hidden) || (bandTerms <= 1 && (bothTerms == 0 || sumTerms == 1));
}

/// False if attributes cannot say it.
bool MaskJoiner::takeBand(const Visibility &visible, const Shape &scores) {
  Visibility both;
  both.lowest = std::max(band.lowest, visible.lowest);
  both.highest = std::min(band.highest, visible.highest);
  if (both.highest >= scores.back() - 1)
    both.highest = Visibility::unlimited;
  if (both.lowest <= 1 - scores[scores.size() - 2])
    both.lowest = -Visibility::unlimited;
  const bool isCausal = both.highest == 0;
  const bool isWindow = both.lowest != -Visibility::unlimited;
  const bool isSaid = isCausal ? both.lowest <= 0 : isWindow ? both.highest == -both.lowest : both.isUnlimited();
  if (!isSaid || both.highest < 0)
    return false;
  band = both;
  attributes.causal = isCausal;
  attributes.window = isWindow ? 1 - both.lowest : 0;
  return true;
}

/// False if attributes and operands cannot say it.
bool MaskJoiner::takeVisible(const Visibility &visible, const Shape &scores) {
  Value *documents = visible.documents ? documentsOfSamples(visible.documents, scores, leading, builder) : nullptr;
  const bool isOther = documents && joined.documents && !holdSameElements(joined.documents, documents);
  if ((visible.documents && !documents) || isOther || !takeBand(visible, scores))
    return false;
  if (!documents)
    return true;
  joined.documents = documents;
  attributes.documents = true;
  return true;
}

bool MaskJoiner::takeStructure(const ScoreMask &mask) {
  const MaskStructure &structure = structures.of(mask, builder);
  if (structure.small) {
    ScoreMask small = mask;
    small.value = structure.small;
    addWhole(small);
    return true;
  }
  if (!structure.visible)
    return false;
  Value *factors = joinFactors(structure.visible->factors, builder);
  if (!factors && !structure.visible->factors.empty())
    return false;
  if (!takeVisible(*structure.visible, mask.scores))
    return false;
  if (structure.visible->hidesPairs()) {
    attributes.hidden = std::max(attributes.hidden, structure.hidden);
    ++bandTerms;
  }
  if (!factors)
    return true;
  Type type = factors->type().withDType(DType::f32);
  Value *added = builder.select(factors, builder.constant(type, 0), builder.constant(type, structure.hidden));
  addWhole({ScoreMask::Kind::added, added, 0, mask.scores});
  bothTerms += structure.visible->hidesPairs();
  return true;
}

void MaskJoiner::join(const ScoreMask &whole) {
  llvm::SmallVector<ScoreMask, 4> terms = {whole};
  for (int i = 0; !terms.empty(); ++i) {
    const ScoreMask mask = terms.pop_back_val();
    if (joinTerm(mask))
      continue;
    const Node *sum = definedBy(belowBroadcasts(mask.value), Op::add);
    if (!sum || mask.kind != ScoreMask::Kind::added || i >= maxTerms) {
      addWhole(mask);
      continue;
    }
    for (unsigned operand : {1u, 0u})
      terms.push_back({mask.kind, sum->operand(operand), mask.fill, mask.scores});
  }
}

/// False if the mask can only be kept whole.
bool MaskJoiner::joinTerm(const ScoreMask &mask) {
  if (!isSmall(mask.value) || constantOf(belowBroadcasts(mask.value)))
    return takeStructure(mask);
  addWhole(mask);
  return true;
}

} // namespace

JoinedMasks joinMasks(llvm::ArrayRef<ScoreMask> masks, llvm::ArrayRef<int64_t> leading, MaskStructures &structures,
                      AttentionAttributes &attributes, Builder &builder) {
  const AttentionAttributes before = attributes;
  MaskJoiner joiner(leading, structures, attributes, builder);
  for (const ScoreMask &mask : masks)
    joiner.join(mask);
  if (!joiner.isExact()) {
    attributes = before;
    MaskJoiner whole(leading, structures, attributes, builder);
    for (const ScoreMask &mask : masks)
      whole.addWhole(mask);
    return whole.joined;
  }
  // Without a mask every query sees at least itself, and hidden keys never count.
  if (joiner.joined.added.empty())
    attributes.hidden = -std::numeric_limits<double>::infinity();
  attributes.masksHidden = std::isfinite(attributes.hidden) && joiner.masksHidden();
  return joiner.joined;
}

} // namespace fsdpc
