#include "ir/ops/attributes.h"
#include "passes/graph/recognizers.h"
#include "passes/graph/repeated_heads.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace fsdpc {

namespace {

// Limit for scale, masks and reshapes between two matmuls.
constexpr int longestPath = 12;
// Clamps at the lowest float and similar.
constexpr double hardlyAnyScore = -1e30;

constexpr int64_t headsFirst[] = {0, 2, 1, 3}; // [B,S,H,D] <-> [B,H,S,D]

llvm::ArrayRef<int64_t> leadingOf(const Value *value) { return value->type().shape().drop_back(2); }

int64_t productOf(llvm::ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (int64_t dim : dims)
    product *= dim;
  return product;
}

/// A reshape that keeps the last two axes: it only regroups batch and heads.
Node *leadingReshape(const Value *value) {
  Node *reshape = definedBy(value, Op::reshape);
  if (!reshape || value->type().rank() < 2 || reshape->operand(0)->type().rank() < 2)
    return nullptr;
  return reshape->operand(0)->type().shape().take_back(2) == value->type().shape().take_back(2) ? reshape : nullptr;
}

/// q, k or v: `value` transposed by `permutation` is [..., sequence, width].
struct Operand {
  Value *value = nullptr;
  Shape permutation;
  Shape shape;

  Operand(Value *value, bool isTransposed) : value(value), shape(value->type().shape()) {
    for (int64_t i = 0; i < value->type().rank(); ++i)
      permutation.push_back(i);
    if (isTransposed) {
      std::swap(permutation.end()[-1], permutation.end()[-2]);
      std::swap(shape.end()[-1], shape.end()[-2]);
    }
  }
  llvm::ArrayRef<int64_t> leading() const { return llvm::ArrayRef<int64_t>(shape).drop_back(2); }
  int64_t sequence() const { return shape.end()[-2]; }
  int64_t width() const { return shape.back(); }
  bool isAsItIs() const { return llvm::is_sorted(permutation); }
};

/// Removes scales and transposes from q or k, in any order.
double simplifyOperand(Operand &operand) {
  double factor = 1;
  for (int i = 0; i < longestPath; ++i) {
    Scaled scaled = takeScaleOff(operand.value);
    factor *= scaled.factor;
    operand.value = scaled.base;
    Node *transpose = definedBy(operand.value, Op::transpose);
    if (!transpose)
      return factor;
    for (int64_t &axis : operand.permutation)
      axis = transpose->get<TransposeAttributes>().permutation[axis];
    operand.value = transpose->operand(0);
  }
  return factor;
}

/// The pattern, matched from its end to its beginning.
class Match {
public:
  Match(const GradientPaths &gradients) : gradients(gradients) {}

  /// False if the matmul is not the end of an attention.
  bool find(Node &node);
  /// Builds the attention that replaces the matmul's result.
  Value *build(Node &node, MaskStructures &structures, Builder &builder);

private:
  Node *softmaxBelow(Value *probabilities);
  bool findScores(Value *scores);
  bool findMask(const Node &node, Value *&scores);
  Value *scoresSide(const Node &sum) const;
  bool findProduct(const Node &product);
  void noteLeading(llvm::ArrayRef<int64_t> leading);
  bool chooseLeading(const Node &node);
  Value *inHeads(const Operand &operand, Builder &builder) const;

  const GradientPaths &gradients;
  std::optional<Operand> query, key, value;
  double scale = 1;   ///< of what was found so far; below a cap, of its argument
  double softcap = 0; ///< 0: none
  llvm::SmallVector<ScoreMask, 2> masks;
  llvm::SmallVector<Shape, 4> leadings; ///< the batch and heads dims along the path
  Shape leading;                        ///< [batch, heads] as chosen
};

void Match::noteLeading(llvm::ArrayRef<int64_t> dims) { leadings.emplace_back(dims); }

/// The softmax with this result, through the guard against NaN. The probabilities must have no other use.
Node *Match::softmaxBelow(Value *probabilities) {
  for (int i = 0; i < longestPath && probabilities->hasOneUse(); ++i) {
    noteLeading(leadingOf(probabilities));
    Node *reshape = leadingReshape(probabilities);
    if (!reshape)
      break;
    probabilities = reshape->operand(0);
  }
  if (!probabilities->hasOneUse())
    return nullptr;
  Node *softmax = definedBy(probabilities, Op::softmax);
  if (Node *guard = definedBy(probabilities, Op::select)) {
    Node *isNan = definedBy(guard->operand(0), Op::isNan);
    softmax = definedBy(guard->operand(2), Op::softmax);
    bool isGuard = isNan && softmax && isNan->operand(0) == softmax->result() && splatOf(guard->operand(1)) == 0.0;
    Use *use = isGuard ? softmax->result()->uses() : nullptr;
    if (!use || !use->next() || use->next()->next() || !isNan->result()->hasOneUse())
      return nullptr;
  }
  bool isOverKeys = softmax && softmax->get<AxisAttributes>().axis == softmax->result()->type().rank() - 1;
  return isOverKeys ? softmax : nullptr;
}

/// True if the value looks like scores: a matmul below scales, masks and reshapes.
bool leadsToMatmul(const Value *value) {
  for (int i = 0; i < longestPath; ++i) {
    const Node *node = value->definer();
    if (!node || node->operandCount() == 0)
      return false;
    if (node->op() == Op::matmul)
      return true;
    if (node->op() != Op::mul && node->op() != Op::div && node->op() != Op::add && node->op() != Op::sub &&
        node->op() != Op::tanh && node->op() != Op::reshape)
      return false;
    value = node->operand(0);
  }
  return false;
}

/// The operand of a sum that holds the scores; the other one needs no gradient. Null if both need one.
Value *Match::scoresSide(const Node &sum) const {
  bool mayBe[] = {!gradients.contains(sum.operand(1)), !gradients.contains(sum.operand(0))};
  if (sum.op() == Op::sub)
    return mayBe[0] ? sum.operand(0) : nullptr;
  if (mayBe[0] && mayBe[1])
    return sum.operand(leadsToMatmul(sum.operand(0)) ? 0 : 1);
  return mayBe[0] ? sum.operand(0) : mayBe[1] ? sum.operand(1) : nullptr;
}

/// Records a mask at this node and continues with the scores below.
bool Match::findMask(const Node &node, Value *&scores) {
  if (softcap != 0)
    return false;
  ScoreMask mask;
  mask.scores = Shape(scores->type().shape());
  if (node.op() == Op::select) {
    for (unsigned i = 1; i <= 2; ++i)
      if (std::optional<double> fill = splatOf(node.operand(i)); fill && isHiding(*fill)) {
        mask.kind = i == 2 ? ScoreMask::Kind::visibleIfTrue : ScoreMask::Kind::hiddenIfTrue;
        mask.fill = *fill;
        mask.value = node.operand(0);
        scores = node.operand(3 - i);
        masks.push_back(std::move(mask));
        return true;
      }
    return false;
  }
  // A later factor scales the mask too.
  Value *side = scale == 1 ? scoresSide(node) : nullptr;
  if (!side || side->type().dtype() != DType::f32)
    return false;
  mask.kind = node.op() == Op::sub ? ScoreMask::Kind::subtracted : ScoreMask::Kind::added;
  mask.value = node.operand(side == node.operand(0) ? 1 : 0);
  scores = side;
  masks.push_back(std::move(mask));
  return true;
}

bool Match::findScores(Value *scores) {
  for (int i = 0; i < longestPath; ++i) {
    noteLeading(leadingOf(scores));
    Scaled scaled = takeScaleOff(scores);
    scale *= scaled.factor;
    scores = scaled.base;
    const Node *node = scores->definer();
    if (!node)
      return false;
    switch (node->op()) {
    case Op::matmul: return findProduct(*node);
    case Op::add:
    case Op::sub:
    case Op::select:
      if (!findMask(*node, scores))
        return false;
      break;
    case Op::tanh:
      if (softcap != 0 || !(scale > 0))
        return false;
      softcap = scale;
      scale = 1;
      scores = node->operand(0);
      break;
    case Op::maximum: {
      std::optional<double> floor = splatOf(node->operand(1));
      if (!floor || *floor > hardlyAnyScore)
        return false;
      scores = node->operand(0);
      break;
    }
    case Op::reshape:
      if (!leadingReshape(scores))
        return false;
      scores = node->operand(0);
      break;
    default: return false;
    }
  }
  return false;
}

bool Match::findProduct(const Node &product) {
  const auto &attributes = product.get<MatmulAttributes>();
  if (product.operandCount() != 2)
    return false;
  query.emplace(product.operand(0), attributes.transposeA);
  key.emplace(product.operand(1), !attributes.transposeB);
  scale *= simplifyOperand(*query) * simplifyOperand(*key);
  return std::isfinite(scale) && scale > 0;
}

bool Match::find(Node &node) {
  if (node.op() != Op::matmul || node.operandCount() != 2 || node.get<MatmulAttributes>().transposeA ||
      !isFloat(node.result()->type().dtype()))
    return false;
  noteLeading(leadingOf(node.result()));
  Node *softmax = softmaxBelow(node.operand(0));
  if (!softmax || !findScores(softmax->operand(0)))
    return false;
  value.emplace(node.operand(1), node.get<MatmulAttributes>().transposeB);
  return chooseLeading(node);
}

/// [batch, heads]: the first two axes seen along the path, else all leading axes are the batch.
bool Match::chooseLeading(const Node &node) {
  int64_t batches = productOf(leadingOf(node.result()));
  for (const Operand *operand : {&*query, &*key, &*value}) {
    if (productOf(operand->leading()) != batches || operand->width() != query->width())
      return false;
    noteLeading(operand->leading());
    if (Node *reshape = leadingReshape(operand->value); reshape && operand->isAsItIs())
      noteLeading(leadingOf(reshape->operand(0)));
  }
  if (key->sequence() != value->sequence())
    return false;
  leading = {batches, 1};
  auto pair = llvm::find_if(leadings, [](const Shape &dims) { return dims.size() == 2; });
  if (pair != leadings.end())
    leading = *pair;
  return true;
}

/// The operand as [batch, heads, sequence, width].
Value *Match::inHeads(const Operand &operand, Builder &builder) const {
  Shape shape = leading;
  shape.append({operand.sequence(), operand.width()});
  Node *reshape = leadingReshape(operand.value);
  if (reshape && operand.isAsItIs() && leadingOf(reshape->operand(0)) == llvm::ArrayRef<int64_t>(leading))
    return reshape->operand(0);
  return builder.reshape(builder.transpose(operand.value, operand.permutation), shape);
}

/// Removes the copies for each query of a group from k and v [batch, heads, ...].
void ungroup(Value *&key, Value *&value, Builder &builder) {
  constexpr int64_t headAxis = 1;
  Value *ownKey = withoutRepetition(key, headAxis, builder), *ownValue = withoutRepetition(value, headAxis, builder);
  if (!ownKey || !ownValue || ownKey->type() != ownValue->type())
    return;
  key = ownKey;
  value = ownValue;
}

Value *Match::build(Node &node, MaskStructures &structures, Builder &builder) {
  AttentionAttributes attributes;
  attributes.scale = softcap > 0 ? scale * softcap : scale;
  attributes.softcap = softcap;
  llvm::SmallVector<Value *, 6> operands;
  for (const Operand *operand : {&*query, &*key, &*value})
    operands.push_back(inHeads(*operand, builder));
  ungroup(operands[1], operands[2], builder);
  attributes.sequenceFirst = llvm::all_of(operands, [](const Value *operand) {
    const Node *transpose = definedBy(operand, Op::transpose);
    return transpose && llvm::ArrayRef<int64_t>(transpose->get<TransposeAttributes>().permutation) ==
                            llvm::ArrayRef<int64_t>(headsFirst);
  });
  if (attributes.sequenceFirst)
    for (Value *&operand : operands)
      operand = operand->definer()->operand(0);
  const JoinedMasks joined = joinMasks(masks, leading, structures, attributes, builder);
  llvm::append_range(operands, joined.added);
  if (joined.documents)
    operands.push_back(joined.documents);
  Value *result = builder.create(Op::attention, operands, attributes)->result();
  if (attributes.sequenceFirst)
    result = builder.transpose(result, headsFirst);
  return builder.reshape(result, node.result()->type().shape());
}

} // namespace

Value *AttentionRecognizer::recognize(Node &node, Builder &builder) {
  Match match(gradients);
  if (!match.find(node))
    return nullptr;
  Value *result = match.build(node, structures, builder);
  gradients.replace(node.result(), result);
  return result;
}

} // namespace fsdpc
