// Scaled dot product attention and its derivative, which recomputes the probabilities instead of storing S x S of them.
#include "ir/ops/attention.h"

#include "ir/ops/attention_evaluate.h"
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include <cmath>

namespace fsdpc {

namespace {

constexpr llvm::StringRef attentionNames[] = {"q", "k", "v", "mask?", "second_mask?", "documents?"};
constexpr llvm::StringRef attentionGradNames[] = {"do",           "q",         "k", "v", "o", "lse", "mask?",
                                                  "second_mask?", "documents?"};

/// The checks on the operands after the first `fixed`.
llvm::Error checkExtras(const OpInfo &info, llvm::ArrayRef<Type> operands, unsigned fixed, const AttentionDims &dims,
                        const AttentionAttributes &attributes) {
  const AttentionExtras extras(operands.size(), fixed, attributes);
  if (fixed + extras.masks.size() + attributes.documents != operands.size())
    return constraintError(info.name, "C10",
                           "there are at most two masks, and documents if, and only if, the attribute is set: " +
                               llvm::Twine(operands.size()) + " operands");
  for (unsigned position : extras.masks)
    if (const Type &mask = operands[position]; mask.dtype() != DType::f32 || !broadcastsTo(mask.shape(), dims.scores()))
      return constraintError(info.name, "C6",
                             "mask is f32 and broadcasts to " + shapeText(dims.scores()) + " but is " + toString(mask));
  const Type *documents = extras.documents ? &operands[*extras.documents] : nullptr;
  if (!documents)
    return llvm::Error::success();
  if (dims.queries != dims.keys || documents->dtype() != DType::i64 || documents->rank() != 2 ||
      (documents->dim(0) != 1 && documents->dim(0) != dims.batch) || documents->dim(1) != dims.keys)
    return constraintError(info.name, "C11",
                           "documents are i64 [" + llvm::Twine(dims.batch) + " or 1," + llvm::Twine(dims.keys) +
                               "], of as many queries as keys, but are " + toString(*documents) + " of " +
                               llvm::Twine(dims.queries) + " queries");
  return llvm::Error::success();
}

/// The checks on q, k, v and optional operands that both ops share, the latter after the first `fixed`. `q` is the
/// index of operand q. k and v follow it.
llvm::Error checkAttention(const OpInfo &info, llvm::ArrayRef<Type> operands, unsigned q, unsigned fixed,
                           const AttentionAttributes &attributes) {
  const Type &query = operands[q];
  const Type &key = operands[q + 1];
  if (query.rank() != 4 || key.rank() != 4)
    return constraintError(info.name, "C1", "q and k have rank 4: " + toString(query) + " and " + toString(key));
  if (llvm::Error error = checkSame(info, "C2", operands, q + 1, q + 2))
    return error;
  if (llvm::Error error = checkFloat(info, "C3", operands, q))
    return error;
  AttentionDims dims(query, key, attributes);
  Shape expected(query.shape());
  expected[dims.sequenceFirst ? 1 : 2] = dims.keys;
  expected[dims.sequenceFirst ? 2 : 1] = dims.keyHeads;
  if (key != query.withShape(expected))
    return constraintError(info.name, "C3",
                           "q and k differ at most in their sequence length and heads: " + toString(query) + " and " +
                               toString(key));
  if (!dims.headsFormGroups())
    return constraintError(info.name, "C4",
                           "the heads of q are a multiple of those of k: " + llvm::Twine(dims.heads) + " and " +
                               llvm::Twine(dims.keyHeads));
  if (!checkedElements(dims.scores()))
    return constraintError(info.name, "C5", "scores " + shapeText(dims.scores()) + " have too many elements");
  if (llvm::Error error = checkExtras(info, operands, fixed, dims, attributes))
    return error;
  if (!std::isfinite(attributes.scale))
    return constraintError(info.name, "C7", "scale is finite but is " + doubleText(attributes.scale));
  if (attributes.window < 0 || !(attributes.hidden < 0) || !(attributes.softcap >= 0))
    return constraintError(info.name, "C7",
                           "window and softcap are not negative and hidden is: " + llvm::Twine(attributes.window) +
                               ", " + doubleText(attributes.softcap) + " and " + doubleText(attributes.hidden));
  return llvm::Error::success();
}

Type lseType(const AttentionDims &dims) { return Type(DType::f32, {dims.batch, dims.heads, dims.queries}); }

llvm::Error inferAttention(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                           llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = attentionInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<AttentionAttributes>(attributes);
  if (llvm::Error error = checkAttention(info, operands, 0, attentionFixed, a))
    return error;
  if (llvm::Error error = addResult(info, "C5", operands[0].dtype(), operands[0].shape(), results))
    return error;
  return addResult(info, "C5", DType::f32, lseType(AttentionDims(operands[0], operands[1], a)).shape(), results);
}

llvm::Error inferAttentionGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                               llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = attentionGradInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<AttentionAttributes>(attributes);
  if (llvm::Error error = checkAttention(info, operands, 1, attentionGradFixed, a))
    return error;
  if (llvm::Error error = checkSame(info, "C8", operands, 0, 1))
    return error;
  if (llvm::Error error = checkSame(info, "C8", operands, 4, 1))
    return error;
  Type lse = lseType(AttentionDims(operands[1], operands[2], a));
  if (operands[5] != lse)
    return constraintError(info.name, "C9", "lse is " + toString(lse) + " but is " + toString(operands[5]));
  results.append({operands[1], operands[2], operands[3]});
  return llvm::Error::success();
}

void differentiateAttention(VjpContext &context) {
  const Node &node = context.node;
  assert(!context.resultCotangents[1] && "lse is kept for the derivative only; nothing else reads it");
  assert(llvm::none_of(context.needed.drop_front(attentionFixed), [](bool needed) { return needed; }) &&
         "attention has no derivative for its mask: a mask that needs one must not become attention");
  Value *cotangent = context.resultCotangents[0];
  if (!cotangent || llvm::none_of(context.needed, [](bool needed) { return needed; }))
    return;
  llvm::SmallVector<Value *, 8> operands = {cotangent,       node.operand(0), node.operand(1),
                                            node.operand(2), node.result(0),  node.result(1)};
  llvm::append_range(operands, llvm::drop_begin(node.operands(), attentionFixed));
  Node *gradient = context.builder.create(Op::attentionGrad, operands, node.get<AttentionAttributes>());
  for (unsigned i = 0; i < 3; ++i)
    if (context.needed[i])
      context.operandCotangents[i] = gradient->result(i);
}

/// The part of all scores that causal and window leave visible.
double visibleShare(const AttentionDims &dims, const AttentionAttributes &attributes) {
  const auto queries = static_cast<double>(dims.queries), keys = static_cast<double>(dims.keys);
  if (queries == 0 || keys == 0)
    return 1;
  double share = attributes.causal ? 0.5 : 1;
  if (attributes.window > 0) {
    const double window = std::min(static_cast<double>(attributes.window), keys);
    // A band of this width on each side of the diagonal, less the corners that lie outside.
    const double side = window * (queries - window / 2) / (queries * keys);
    share = std::min(share, std::max(side, 0.0) * (attributes.causal ? 1 : 2));
  }
  return share;
}

/// The cost of `matmuls` matmuls [Sq, D] x [D, Sk] per head and the exponentials between them, of the keys that causal
/// and window leave visible.
Cost costOfAttention(const Node &node, unsigned q, double matmuls) {
  const auto &attributes = node.get<AttentionAttributes>();
  AttentionDims dims(node.operand(q)->type(), node.operand(q + 1)->type(), attributes);
  auto scores = static_cast<double>(*checkedElements(dims.scores()));
  double perScore = 2 * matmuls * static_cast<double>(dims.width) + 5;
  return costWithFlops(node, scores * perScore * visibleShare(dims, attributes));
}

// ---- position of the batch

/// An operand's axis as an axis of the scores [batch, heads, queries, keys]; -1 for an axis that the scores sum over.
int64_t scoreAxis(const Node &node, unsigned operand, int64_t axis) {
  const AttentionExtras extras(node);
  if (llvm::is_contained(extras.masks, operand))
    return axis + 4 - node.operand(operand)->type().rank();
  if (extras.documents == operand)
    return axis == 0 ? 0 : -1;
  if (node.get<AttentionAttributes>().sequenceFirst && (axis == 1 || axis == 2))
    axis = 3 - axis;
  if (axis < 2)
    return axis;
  return operand == 0 && axis == 2 ? 2 : -1;
}

/// The position of the operand's samples in the scores. One head of k or v corresponds to a group of heads there.
BatchFact batchOfScores(const Node &node, unsigned operand, BatchFact fact) {
  if (!hasPosition(fact))
    return fact;
  fact = onAxis(fact, scoreAxis(node, operand, fact.position.axis));
  int64_t headAxis = node.get<AttentionAttributes>().sequenceFirst ? 2 : 1;
  if (hasPosition(fact) && fact.position.axis == 1 && (operand == 1 || operand == 2))
    fact.position.inner *= node.operand(0)->type().dim(headAxis) / node.operand(operand)->type().dim(headAxis);
  return fact;
}

BatchFact batchOfAttention(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned result) {
  BatchFact scores;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    scores = join(scores, batchOfScores(node, i, operands[i]));
  int64_t axis = scores.position.axis;
  bool isSwapped = node.get<AttentionAttributes>().sequenceFirst && (axis == 1 || axis == 2);
  int64_t logSumAxis = axis < 3 ? axis : -1; // keys are summed over
  return onAxis(scores, result == 0 && isSwapped ? 3 - axis : logSumAxis);
}

} // namespace

const OpInfo attentionInfo = {
    .name = "attention",
    .doc =
        "o = softmax(scale * q k^T + mask) v per batch and head, on [B,H,S,D] or, with sequence_first, [B,S,H,D]; "
        "head h of q reads head h / (heads of q / heads of k) of k and v: grouped queries where k has fewer; causal: "
        "query i sees keys 0 to i; window w: it sees keys less than w away; documents: it sees keys of its own "
        "document, whose numbers are the last operand; hidden is added to the scores of the keys that these three hide "
        "in place of the mask, or with masks_hidden beside it; softcap c: scale * q k^T is c * tanh of its c-th part "
        "first; lse f32[B,H,Sq] = log of the sum of the exponentials, kept for the derivative only; a query that sees "
        "no key gives o = 0 and lse = -inf. Both masks are added and have no derivative. library: computed by the "
        "target's library, which changes no meaning. (C1) q "
        "and k have rank 4. (C2) k and v have one type. (C3) q is float and differs from k at most in its sequence "
        "length and heads. (C4) The heads of q are a multiple of those of k. (C5) scores and results fit. (C6) Masks "
        "are f32 and broadcast to [B,H,Sq,Sk]. (C7) scale is finite, window and softcap not negative, hidden negative. "
        "(C10) There are at most two masks, and documents if the attribute is set. (C11) They are i64 [B or 1,Sk], "
        "with Sq = Sk.",
    .operandNames = attentionNames,
    .traits = pure,
    .makeAttributes = makeAttributes<AttentionAttributes>,
    .infer = inferAttention,
    .evaluate = evaluateAttention,
    .vjp = differentiateAttention,
    .cost = [](const Node &node) { return costOfAttention(node, 0, 2); },
    .computeClass = ComputeClass::attention,
    .stages = everyStage,
    .batch = batchOfAttention,
};

const OpInfo attentionGradInfo = {
    .name = "attention_grad",
    .doc = "The cotangents dq, dk, dv of attention, from its operands and results. (C1) to (C7), (C10) and (C11) as "
           "attention. (C8) do and o have the type of q. (C9) lse is f32[B,H,Sq].",
    .operandNames = attentionGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<AttentionAttributes>,
    .infer = inferAttentionGrad,
    .evaluate = evaluateAttentionGrad,
    .vjp = notDifferentiable,
    .cost = [](const Node &node) { return costOfAttention(node, 1, 5); },
    .computeClass = ComputeClass::attention,
    .stages = everyStage,
    .batch = losesBatch,
};

VisibleKeys::VisibleKeys(const AttentionAttributes &attributes, int64_t query, int64_t keys, const double *documents)
    : first(0), end(keys), query(query), documents(documents) {
  if (attributes.window > 0) {
    first = std::max(query - attributes.window, int64_t{-1}) + 1;
    end = attributes.window > keys - query ? end : query + attributes.window;
  }
  if (attributes.causal)
    end = std::min(end, query + 1);
}

AttentionExtras::AttentionExtras(size_t count, unsigned fixed, const AttentionAttributes &attributes) {
  auto end = static_cast<unsigned>(count);
  if (attributes.documents && end > fixed)
    documents = --end;
  for (unsigned mask = fixed; mask < end && masks.size() < maxMasks; ++mask)
    masks.push_back(mask);
}

AttentionExtras::AttentionExtras(const Node &node)
    : AttentionExtras(node.operandCount(), firstOf(node), node.get<AttentionAttributes>()) {}

unsigned AttentionExtras::firstOf(const Node &node) {
  return node.op() == Op::attention ? attentionFixed : attentionGradFixed;
}

const double *documentsOfSample(const HostTensor *documents, int64_t b) {
  return documents ? documents->values.data() + (documents->type.dim(0) == 1 ? 0 : b * documents->type.dim(1))
                   : nullptr;
}

bool isAttention(const Node &node) { return node.op() == Op::attention || node.op() == Op::attentionGrad; }

bool isAttentionByLibrary(const Node &node) { return isAttention(node) && node.get<AttentionAttributes>().byLibrary; }

} // namespace fsdpc
