// scatter_nd: rows of a tensor replaced by, or combined with, rows of updates.
//
// Several tuples may select one row. They are applied in order, so that without a reduction the last one wins. The
// derivative is torch's: every update of a row gets the row's cotangent, even if another update replaced it. Elements
// that tie for the largest or smallest share evenly.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include "ir/ops/index.h"

#include <cmath>

namespace fsdpc {

namespace {

using Combine = double (*)(double, double);

/// Null for an unknown name.
Combine combineOf(llvm::StringRef reduction) {
  if (reduction == "none")
    return [](double, double update) { return update; };
  if (reduction == "add")
    return [](double x, double update) { return x + update; };
  if (reduction == "mul")
    return [](double x, double update) { return x * update; };
  if (reduction == "max")
    return [](double x, double update) { return x < update || std::isnan(update) ? update : x; };
  if (reduction == "min")
    return [](double x, double update) { return update < x || std::isnan(update) ? update : x; };
  return nullptr;
}

llvm::Error inferScatterNd(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                           llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(scatterNdInfo, operands))
    return error;
  const auto &own = attributesOf<ScatterNdAttributes>(attributes);
  if (llvm::Error error = checkIndexTuples(scatterNdInfo, operands, own.batchDims))
    return error;
  const Type &x = operands[0], &indices = operands[1], &updates = operands[2];
  Shape shape(indices.shape().drop_back(1));
  llvm::ArrayRef<int64_t> inner = x.shape().drop_front(own.batchDims + indices.dim(-1));
  shape.append(inner.begin(), inner.end());
  if (updates != x.withShape(shape))
    return constraintError("scatter_nd", "C4",
                           "updates must be " + toString(x.withShape(shape)) + ", but are " + toString(updates));
  if (!combineOf(own.reduction))
    return constraintError("scatter_nd", "C5", "no reduction is called '" + own.reduction + "'");
  if (own.reduction != "none" && x.dtype() == DType::boolean)
    return constraintError("scatter_nd", "C5", "elements must be numbers: " + toString(x));
  return addResult(scatterNdInfo, "C4", x.dtype(), x.shape(), results);
}

void evaluateScatterNd(EvaluateContext &context) {
  const auto &own = context.get<ScatterNdAttributes>();
  const HostTensor &x = *context.operands[0], &indices = *context.operands[1], &updates = *context.operands[2];
  IndexTuples tuples(x.type, indices.type, own.batchDims);
  std::vector<double> &result = context.results[0].values;
  result = x.values;
  Combine combine = combineOf(own.reduction);
  for (int64_t tuple = 0; tuple < tuples.batches * tuples.tuples; ++tuple) {
    int64_t row = tuples.rowOf(tuple, indices.values);
    for (int64_t j = 0; row >= 0 && j < tuples.inner; ++j) {
      double &element = result[row * tuples.inner + j];
      element = combine(element, updates.values[tuple * tuples.inner + j]);
    }
  }
}

/// Builds the derivative of one node.
class Derivative {
public:
  explicit Derivative(VjpContext &context)
      : context(context), builder(context.builder), own(context.node.get<ScatterNdAttributes>()),
        x(context.node.operand(0)), indices(context.node.operand(1)), updates(context.node.operand(2)),
        result(context.node.result()), dy(context.resultCotangents[0]) {}
  void replaced();
  void added();
  void multiplied();
  void extremum();

private:
  Value *scatter(Value *into, Value *rows, llvm::StringRef reduction) {
    ScatterNdAttributes attributes{own.batchDims, reduction.str()};
    return builder.create(Op::scatterNd, {into, indices, rows}, attributes)->result();
  }
  /// The rows that the tuples select, in the shape of the updates.
  Value *gather(Value *from) {
    return builder.create(Op::gatherNd, {from, indices}, GatherNdAttributes{own.batchDims})->result();
  }
  Value *ones(Value *condition) { return builder.cast(condition, dy->type().dtype()); }
  Value *equal(Value *a, Value *b) { return builder.binary(Op::equal, a, b); }
  Value *zeroLike(Value *value) { return builder.constantLike(value, 0); }
  void set(unsigned operand, Value *cotangent) { context.operandCotangents[operand] = cotangent; }
  Value *withoutFactor(Value *factor, Value *zeros, Value *product);

  VjpContext &context;
  Builder &builder;
  const ScatterNdAttributes &own;
  Value *x, *indices, *updates, *result, *dy;
};

void Derivative::replaced() {
  if (context.needed[0])
    set(0, scatter(dy, zeroLike(updates), "none"));
  if (context.needed[2])
    set(2, gather(dy));
}

void Derivative::added() {
  if (context.needed[0])
    set(0, dy);
  if (context.needed[2])
    set(2, gather(dy));
}

/// The product of the other factors in an element's group, where `product` is that of all nonzero factors and `zeros`
/// is the number of zeros. 0 if another factor is zero.
Value *Derivative::withoutFactor(Value *factor, Value *zeros, Value *product) {
  Value *zero = zeroLike(factor), *one = builder.constantLike(factor, 1);
  Value *isZero = equal(factor, zero);
  Value *atZero = builder.select(equal(zeros, one), product, zero);
  Value *quotient = builder.div(product, builder.select(isZero, one, factor));
  return builder.select(isZero, atZero, builder.select(equal(zeros, zero), quotient, zero));
}

void Derivative::multiplied() {
  auto nonZero = [&](Value *value) {
    return builder.select(equal(value, zeroLike(value)), builder.constantLike(value, 1), value);
  };
  Value *product = builder.mul(dy, scatter(nonZero(x), nonZero(updates), "mul"));
  Value *zeros = scatter(ones(equal(x, zeroLike(x))), ones(equal(updates, zeroLike(updates))), "add");
  if (context.needed[0])
    set(0, withoutFactor(x, zeros, product));
  if (context.needed[2])
    set(2, withoutFactor(updates, gather(zeros), gather(product)));
}

void Derivative::extremum() {
  Value *isReachedByX = equal(x, result), *isReached = equal(updates, gather(result));
  Value *count = scatter(ones(isReachedByX), ones(isReached), "add");
  Value *share = builder.div(dy, count);
  if (context.needed[0])
    set(0, builder.select(isReachedByX, share, zeroLike(x)));
  if (context.needed[2])
    set(2, builder.select(isReached, gather(share), zeroLike(updates)));
}

void scatterNdVjp(VjpContext &context) {
  if (!context.resultCotangents[0] || (!context.needed[0] && !context.needed[2]))
    return;
  Derivative derivative(context);
  llvm::StringRef reduction = context.node.get<ScatterNdAttributes>().reduction;
  if (reduction == "none")
    derivative.replaced();
  else if (reduction == "add")
    derivative.added();
  else if (reduction == "mul")
    derivative.multiplied();
  else
    derivative.extremum();
}

constexpr llvm::StringRef namesScatterNd[] = {"x", "indices", "updates"};

int64_t axisOfScatterNd(const Node &node, unsigned operand, int64_t axis) {
  int64_t batchDims = node.get<ScatterNdAttributes>().batchDims, tupleRank = node.operand(1)->type().rank();
  int64_t depth = node.operand(1)->type().dim(-1);
  if (axis < batchDims)
    return axis;
  if (operand == 0)
    return axis < batchDims + depth ? -1 : axis;
  return operand == 1 || axis < tupleRank - 1 ? -1 : axis - (tupleRank - 1) + batchDims + depth;
}

} // namespace

constinit const OpInfo scatterNdInfo = {
    .name = "scatter_nd",
    .doc = "x, where what each tuple along the last axis of indices names, after batch_dims leading axes that all "
           "share, is replaced by its row of updates or, with a `reduction`, is their sum, product, largest or "
           "smallest with it, in the order of the tuples; NaN wins. (C1) indices are i64 or i32. (C2) The batch dims "
           "agree and leave an axis in each. (C3) A tuple has 1 to rank of x minus batch_dims entries. (C4) updates "
           "are what gather_nd would pick; the result's bytes fit in memory. (C5) reduction is none, add, mul, max "
           "or min; all but none take numbers.",
    .operandNames = namesScatterNd,
    .traits = pure,
    .makeAttributes = makeAttributes<ScatterNdAttributes>,
    .infer = inferScatterNd,
    .evaluate = evaluateScatterNd,
    .vjp = scatterNdVjp,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchByAxis<axisOfScatterNd>,
};

} // namespace fsdpc
