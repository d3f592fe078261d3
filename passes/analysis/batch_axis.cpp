// One rule per op: where the batch of each operand comes out. Where the operands disagree the batch is lost, except
// where one rank has one sample: then every element is of that sample, wherever the position says.
#include "passes/analysis/batch_axis.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/ops/helpers.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

using Kind = BatchAxis::Kind;
using Fact = BatchAxis::Fact;

constexpr Fact lost{Kind::lost, {}};

Fact found(BatchPosition position) { return {Kind::found, position}; }

/// The same on another axis; lost for an axis below 0.
Fact onAxis(Fact fact, int64_t axis) {
  if (fact.kind != Kind::found)
    return fact;
  fact.position.axis = axis;
  return axis < 0 ? lost : fact;
}

Fact join(Fact a, Fact b) {
  if (a.kind == Kind::none || b.kind == Kind::none)
    return a.kind == Kind::none ? b : a;
  if (a.kind == Kind::lost || b.kind == Kind::lost)
    return lost;
  if (a.position == b.position || (a.position.samples == 1 && b.position.samples == 1))
    return a;
  return lost;
}

// ---- Shapes

/// In row-major order the sample of element f is (f / stride) % samples, whatever the shape: finds the axis where that
/// is so.
Fact atStride(int64_t stride, int64_t samples, llvm::ArrayRef<int64_t> shape) {
  Shape strides = rowMajorStrides(shape);
  auto fits = [&](size_t axis) {
    return stride % strides[axis] == 0 && shape[axis] % (stride / strides[axis] * samples) == 0;
  };
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] == samples && strides[axis] == stride)
      return found({static_cast<int64_t>(axis), samples, 1});
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 0 && fits(axis))
      return found({static_cast<int64_t>(axis), samples, stride / strides[axis]});
  if (samples == 1 && !shape.empty())
    return found({0, 1, std::max<int64_t>(shape[0], 1)});
  return lost;
}

Fact reshaped(const BatchPosition &position, const Type &from, const Type &to) {
  if (from.elements() == 0)
    return lost;
  int64_t stride = productOf(from.shape(), position.axis + 1, from.rank()) * position.inner;
  return atStride(stride, position.samples, to.shape());
}

Fact broadcasted(Fact fact, const Type &from, const Type &to) {
  int64_t axis = fact.position.axis + to.rank() - from.rank();
  if (to.dim(axis) != from.dim(fact.position.axis))
    fact.position.inner = to.dim(axis); // the one sample, repeated
  return onAxis(fact, axis);
}

/// A part of the axis that starts with sample 0 and ends with the last; or every step-th neighbour of each sample.
Fact sliced(Fact fact, const SliceAttributes &slice, int64_t dim) {
  BatchPosition &position = fact.position;
  int64_t start = slice.starts[position.axis], size = slice.sizes[position.axis], step = slice.steps[position.axis];
  if (start == 0 && size == dim && step == 1)
    return fact;
  int64_t period = position.samples * position.inner;
  if (step < 1 || position.inner % step != 0 || start % period >= step || size % (period / step) != 0)
    return lost;
  position.inner /= step;
  return fact;
}

Fact padded(Fact fact, const PadAttributes &pad) {
  int64_t axis = fact.position.axis, period = fact.position.samples * fact.position.inner;
  bool keepsOrder = pad.interior[axis] == 0 && pad.before[axis] % period == 0 && pad.after[axis] % period == 0;
  return keepsOrder ? fact : lost;
}

Fact reduced(Fact fact, const Shape &axes, bool keepDims) {
  int64_t axis = fact.position.axis;
  if (llvm::is_contained(axes, axis))
    return {}; // overall samples: it belongs to none of them
  int64_t before = llvm::count_if(axes, [&](int64_t reducedAxis) { return reducedAxis < axis; });
  return onAxis(fact, keepDims ? axis : axis - before);
}

// ---- Ops with operands of several kinds

/// `axis` of an operand of a product, as an axis of the result; -1 for the summed one.
int64_t productAxis(const Node &node, unsigned operand, int64_t axis) {
  const auto &own = node.get<MatmulAttributes>();
  int64_t rank = node.operand(operand)->type().rank(), resultRank = node.result()->type().rank();
  if (operand == 2)
    return resultRank - 1;
  if (axis < rank - 2)
    return axis;
  bool isFirst = axis == rank - 2;
  bool isKept = operand == 0 ? isFirst != own.transposeA : isFirst == own.transposeB;
  return isKept ? (operand == 0 ? resultRank - 2 : resultRank - 1) : -1;
}

/// Gather: `axis` of x makes room for the axes of the indices.
int64_t gatheredAxis(const Node &node, unsigned operand, int64_t axis) {
  int64_t gathered = node.get<AxisAttributes>().axis;
  if (operand == 1)
    return gathered + axis;
  if (axis == gathered)
    return -1;
  return axis < gathered ? axis : axis - 1 + node.operand(1)->type().rank();
}

int64_t gatheredTupleAxis(const Node &node, unsigned operand, int64_t axis) {
  const Type &indices = node.operand(1)->type();
  int64_t batchDims = node.get<GatherNdAttributes>().batchDims, depth = indices.dim(-1);
  if (operand == 1)
    return axis < indices.rank() - 1 ? axis : -1;
  if (axis < batchDims)
    return axis;
  return axis < batchDims + depth ? -1 : axis - batchDims - depth + indices.rank() - 1;
}

int64_t scatteredTupleAxis(const Node &node, unsigned operand, int64_t axis) {
  int64_t batchDims = node.get<ScatterNdAttributes>().batchDims, tupleRank = node.operand(1)->type().rank();
  int64_t depth = node.operand(1)->type().dim(-1);
  if (axis < batchDims)
    return axis;
  if (operand == 0)
    return axis < batchDims + depth ? -1 : axis;
  return operand == 1 || axis < tupleRank - 1 ? -1 : axis - (tupleRank - 1) + batchDims + depth;
}

int64_t scatteredAxis(const Node &node, unsigned operand, int64_t axis) {
  int64_t first = node.get<ScatterAddAttributes>().axis, count = node.operand(0)->type().rank();
  if (operand == 0 || (axis >= first && axis < first + count))
    return -1;
  return axis < first ? axis : axis - count + 1;
}

/// As an axis of the scores [batch, heads, queries, keys]; -1 for what the scores sum over.
int64_t scoreAxis(const Node &node, unsigned operand, int64_t axis) {
  if (operand == 3)
    return axis + 4 - node.operand(3)->type().rank();
  if (node.get<AttentionAttributes>().sequenceFirst && (axis == 1 || axis == 2))
    axis = 3 - axis;
  if (axis < 2)
    return axis;
  return operand == 0 && axis == 2 ? 2 : -1;
}

/// The first `kept` axes of operands stay where they are, those behind are mixed.
auto keepFirst(int64_t kept) {
  return [kept](const Node &, unsigned, int64_t axis) { return axis < kept ? axis : -1; };
}

/// Follows one function from its arguments to its results.
class Walk {
public:
  explicit Walk(llvm::DenseMap<const Value *, Fact> &facts) : facts(facts) {}
  void visit(const Node &node);

private:
  Fact of(const Value *value) const { return facts.lookup(value); }
  void set(const Value *result, Fact fact) {
    if (fact.kind != Kind::none)
      facts[result] = fact;
  }
  bool hasBatch(const Node &node) const {
    return llvm::any_of(node.operands(), [&](const Value *operand) { return of(operand).kind != Kind::none; });
  }

  /// What all operands agree on when `axisOf` has said where each one's axis comes out.
  template <class AxisOf>
  Fact joined(const Node &node, AxisOf axisOf) const {
    Fact result;
    for (unsigned i = 0; i < node.operandCount(); ++i) {
      Fact fact = of(node.operand(i));
      result = join(result, fact.kind == Kind::found ? onAxis(fact, axisOf(node, i, fact.position.axis)) : fact);
    }
    return result;
  }
  Fact concatenated(const Node &node) const;
  Fact scoresOf(const Node &node, unsigned operand) const;
  void visitAttention(const Node &node);
  Fact ofRotated(const Node &node) const;
  void visitNorm(const Node &node);
  Fact ofMoved(const Node &node, Fact fact) const;
  Fact ofComputed(const Node &node) const;

  llvm::DenseMap<const Value *, Fact> &facts;
};

/// Along the axis of the batch, every part must hold whole runs of all samples.
Fact Walk::concatenated(const Node &node) const {
  Fact fact = joined(node, keepFirst(node.result()->type().rank()));
  if (fact.kind != Kind::found || fact.position.axis != node.get<AxisAttributes>().axis)
    return fact;
  int64_t period = fact.position.samples * fact.position.inner;
  for (const Value *operand : node.operands())
    if (operand->type().dim(fact.position.axis) % period != 0)
      return lost;
  return fact;
}

/// Where the samples of the operand are in the scores [batch, heads, queries, keys]. A head of k or v is that of a
/// group of heads there.
Fact Walk::scoresOf(const Node &node, unsigned operand) const {
  Fact fact = of(node.operand(operand));
  if (fact.kind != Kind::found)
    return fact;
  fact = onAxis(fact, scoreAxis(node, operand, fact.position.axis));
  int64_t headAxis = node.get<AttentionAttributes>().sequenceFirst ? 2 : 1;
  if (fact.kind == Kind::found && fact.position.axis == 1 && (operand == 1 || operand == 2))
    fact.position.inner *= node.operand(0)->type().dim(headAxis) / node.operand(operand)->type().dim(headAxis);
  return fact;
}

void Walk::visitAttention(const Node &node) {
  Fact scores;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    scores = join(scores, scoresOf(node, i));
  int64_t axis = scores.position.axis;
  bool isSwapped = node.get<AttentionAttributes>().sequenceFirst && (axis == 1 || axis == 2);
  int64_t logSumAxis = axis < 3 ? axis : -1; // keys are summed over
  set(node.result(0), onAxis(scores, isSwapped ? 3 - axis : logSumAxis));
  set(node.result(1), onAxis(scores, logSumAxis));
}

/// Elements of a vector are mixed; the angles of a vector may be those of its sample.
Fact Walk::ofRotated(const Node &node) const {
  const Type &type = node.result()->type();
  Fact fact = of(node.operand(0));
  for (unsigned i = 1; i <= 2; ++i) {
    Fact angles = of(node.operand(i));
    fact = join(fact, angles.kind == Kind::found ? broadcasted(angles, node.operand(i)->type(), type) : angles);
  }
  return fact.kind == Kind::found && fact.position.axis == type.rank() - 1 ? lost : fact;
}

void Walk::visitNorm(const Node &node) {
  int64_t axis = node.get<NormAttributes>().axis;
  auto keepOfX = [axis](const Node &, unsigned operand, int64_t own) { return operand == 0 && own < axis ? own : -1; };
  Fact fact = joined(node, keepOfX);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    set(node.result(i), fact);
}

/// Ops with one operand, which has a position.
Fact Walk::ofMoved(const Node &node, Fact fact) const {
  const Type &from = node.operand(0)->type(), &to = node.result(0)->type();
  int64_t axis = fact.position.axis;
  switch (node.op()) {
  case Op::reshape: return reshaped(fact.position, from, to);
  case Op::broadcast: return broadcasted(fact, from, to);
  case Op::transpose: {
    const Shape &permutation = node.get<TransposeAttributes>().permutation;
    return onAxis(fact, llvm::find(permutation, axis) - permutation.begin());
  }
  case Op::slice: return sliced(fact, node.get<SliceAttributes>(), from.dim(axis));
  case Op::pad: return padded(fact, node.get<PadAttributes>());
  case Op::reduceSum:
  case Op::reduceMax:
  case Op::reduceMin:
  case Op::reduceProd: return reduced(fact, node.get<ReduceAttributes>().axes, node.get<ReduceAttributes>().keepDims);
  case Op::argMax: return reduced(fact, {node.get<AxisAttributes>().axis}, false);
  case Op::softmax:
  case Op::logSoftmax: return axis == node.get<AxisAttributes>().axis ? lost : fact;
  case Op::cumulativeSum: return axis == node.get<CumulativeSumAttributes>().axis ? lost : fact;
  case Op::topK: return axis == from.rank() - 1 ? lost : fact;
  case Op::maxPool:
  case Op::averagePool: return axis < 2 ? fact : lost;
  default: return lost;
  }
}

Fact Walk::ofComputed(const Node &node) const {
  if (isElementwise(node))
    return joined(node, keepFirst(node.result()->type().rank()));
  switch (node.op()) {
  case Op::concat: return concatenated(node);
  case Op::matmul: return joined(node, productAxis);
  case Op::rotary: return ofRotated(node);
  case Op::gather: return joined(node, gatheredAxis);
  case Op::gatherNd: return joined(node, gatheredTupleAxis);
  case Op::scatterAdd: return joined(node, scatteredAxis);
  case Op::scatterNd: return joined(node, scatteredTupleAxis);
  case Op::convolution:
    return joined(node, [](const Node &, unsigned i, int64_t axis) { return i == 0 && axis == 0 ? 0 : -1; });
  case Op::crossEntropy:
  case Op::nll: return joined(node, keepFirst(node.operand(0)->type().rank() - 1));
  default: break;
  }
  Fact fact = node.operandCount() == 1 ? of(node.operand(0)) : lost;
  return fact.kind == Kind::found ? ofMoved(node, fact) : fact;
}

void Walk::visit(const Node &node) {
  // Random numbers belong to whoever meets them.
  if (node.resultCount() == 0 || !hasBatch(node) || node.op() == Op::randomUniform)
    return;
  if (node.op() == Op::attention)
    return visitAttention(node);
  if (node.op() == Op::layerNorm || node.op() == Op::rmsNorm)
    return visitNorm(node);
  if (node.op() == Op::batchNorm) {
    auto keepOfX = [](const Node &, unsigned operand, int64_t own) { return operand == 0 && own != 1 ? own : -1; };
    return set(node.result(), joined(node, keepOfX));
  }
  Fact fact = ofComputed(node);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    set(node.result(i), fact);
}

} // namespace

BatchAxis::BatchAxis(const Function &function) {
  for (const Argument &argument : function.arguments()) {
    const Type &type = argument.value->type();
    if (argument.kind == ArgumentKind::input && type.rank() > 0 && type.dim(0) > 0)
      facts[argument.value.get()] = found({0, type.dim(0), 1});
  }
  Walk walk(facts);
  for (Node *node : function)
    walk.visit(*node);
}

std::optional<BatchPosition> BatchAxis::of(const Value *value) const {
  auto fact = facts.find(value);
  if (fact == facts.end() || fact->second.kind != Kind::found)
    return std::nullopt;
  return fact->second.position;
}

} // namespace fsdpc
