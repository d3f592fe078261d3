// top_k: the k largest or smallest elements of every row, in order.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fsdpc {

namespace {

llvm::Error inferTopK(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(topKInfo, operands))
    return error;
  const Type &x = operands[0];
  if (x.rank() == 0 || x.dtype() == DType::boolean)
    return constraintError("top_k", "C1", "x must be numbers with an axis: " + toString(x));
  int64_t k = attributesOf<TopKAttributes>(attributes).k;
  if (k < 1 || k > x.dim(-1))
    return constraintError("top_k", "C2",
                           "k is " + llvm::Twine(k) + ", the last axis of " + toString(x) + " has " +
                               llvm::Twine(x.dim(-1)) + " elements");
  Shape shape(x.shape());
  shape.back() = k;
  if (llvm::Error error = addResult(topKInfo, "C3", x.dtype(), shape, results))
    return error;
  return addResult(topKInfo, "C3", DType::i64, shape, results);
}

/// NaN counts as the largest.
bool isLarger(double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

void evaluateTopK(EvaluateContext &context) {
  const auto &own = context.get<TopKAttributes>();
  const HostTensor &x = *context.operands[0];
  int64_t length = x.type.dim(-1), rows = productOf(x.type.shape(), 0, x.type.rank() - 1);
  std::vector<int64_t> order(length);
  for (int64_t row = 0; row < rows; ++row) {
    const double *elements = x.values.data() + row * length;
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return own.smallest ? isLarger(elements[b], elements[a]) : isLarger(elements[a], elements[b]);
    });
    for (int64_t i = 0; i < own.k; ++i) {
      context.results[0].values[row * own.k + i] = elements[order[i]];
      context.results[1].values[row * own.k + i] = static_cast<double>(order[i]);
    }
  }
}

/// Scatters the cotangents of the values to their source positions.
void topKVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  Builder &builder = context.builder;
  Value *x = context.node.operand(0), *indices = context.node.result(1);
  Shape shape(indices->type().shape());
  shape.push_back(1);
  ScatterNdAttributes back{x->type().rank() - 1, "none"};
  context.operandCotangents[0] =
      builder.create(Op::scatterNd, {builder.constantLike(x, 0), builder.reshape(indices, shape), dy}, back)->result();
}

Cost topKCost(const Node &node) {
  double elements = static_cast<double>(node.operand(0)->type().elements());
  return costWithFlops(node, elements * std::log2(2.0 + static_cast<double>(node.get<TopKAttributes>().k)));
}

bool selectsAlong(const Node &node, int64_t axis) { return axis == node.operand(0)->type().rank() - 1; }

} // namespace

constinit const OpInfo topKInfo = {
    .name = "top_k",
    .doc =
        "The k largest elements along the last axis, largest first, and where they were (i64); the smallest, smallest "
        "first, if `smallest`. Of equal ones the first comes first, and NaN counts as the largest. (C1) x is numbers "
        "with an axis. (C2) 1 <= k <= elements of that axis. (C3) The results' bytes fit in memory.",
    .operandNames = namesX,
    .traits = pure,
    .makeAttributes = makeAttributes<TopKAttributes>,
    .infer = inferTopK,
    .evaluate = evaluateTopK,
    .vjp = topKVjp,
    .cost = topKCost,
    .computeClass = ComputeClass::reduce,
    .stages = everyStage,
    .batch = batchUnlessMixed<selectsAlong>,
};

} // namespace fsdpc
