// Rotary position embedding (Su and others, 2021), in the form that pairs element j of a vector with element j + D/2.
//
// A vector of width D is rotated by R, which is linear in it:
//     y[j]       = x[j]       * cos[j]       - x[j + D/2] * sin[j]
//     y[j + D/2] = x[j + D/2] * cos[j + D/2] + x[j]       * sin[j + D/2]
// So the derivative is the transpose of R: the sines change their sign and swap positions. If both halves of cos and
// sin are equal, as they are for angles, the transpose is R with -sin, the inverse rotation. Nothing here relies on
// that.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

namespace fsdpc {

namespace {

constexpr llvm::StringRef rotaryNames[] = {"x", "cos", "sin"};
constexpr int64_t maxDims = 4;

llvm::Error inferRotary(llvm::ArrayRef<Type> operands, const AttributesBase *, llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = rotaryInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const Type &x = operands[0], &table = operands[1];
  if (llvm::Error error = checkFloat(info, "C1", operands, 0))
    return error;
  if (x.rank() < 1 || x.rank() > maxDims || x.dim(-1) % 2 != 0)
    return constraintError(info.name, "C1", "x has 1 to 4 axes, the last one even: " + toString(x));
  if (llvm::Error error = checkSame(info, "C2", operands, 1, 2))
    return error;
  if (table.dtype() != x.dtype() || table.rank() < 1 || table.dim(-1) != x.dim(-1) ||
      !broadcastsTo(table.shape(), x.shape()))
    return constraintError(info.name, "C3",
                           "cos and sin have the dtype and last axis of x and broadcast to it: " + toString(table) +
                               " and " + toString(x));
  results.push_back(x);
  return llvm::Error::success();
}

/// Rotates one vector. y does not alias x.
void rotate(const double *x, const double *cos, const double *sin, int64_t width, bool transposed, double *y) {
  const int64_t half = width / 2;
  for (int64_t j = 0; j < half; ++j) {
    const double low = transposed ? sin[j + half] : -sin[j], high = transposed ? -sin[j] : sin[j + half];
    y[j] = x[j] * cos[j] + x[j + half] * low;
    y[j + half] = x[j + half] * cos[j + half] + x[j] * high;
  }
}

void evaluateRotary(EvaluateContext &context) {
  const HostTensor &x = *context.operands[0], &cos = *context.operands[1], &sin = *context.operands[2];
  const bool transposed = context.get<RotaryAttributes>().transposed;
  const int64_t width = x.type.dim(-1);
  if (width == 0)
    return;
  Shape strides = broadcastStrides(cos.type.shape(), x.type.shape());
  forEachIndex(x.type.shape().drop_back(), [&](int64_t row, llvm::ArrayRef<int64_t> coordinates) {
    const int64_t table = flatIndex(coordinates, llvm::ArrayRef<int64_t>(strides).drop_back());
    rotate(x.values.data() + row * width, cos.values.data() + table, sin.values.data() + table, width, transposed,
           context.results[0].values.data() + row * width);
  });
}

void differentiateRotary(VjpContext &context) {
  const Node &node = context.node;
  assert(!context.needed[1] && !context.needed[2] &&
         "rotary has no derivative for its angles: where they need one they must not become rotary");
  Value *dy = context.resultCotangents[0];
  if (!dy || !context.needed[0])
    return;
  RotaryAttributes back{!node.get<RotaryAttributes>().transposed};
  context.operandCotangents[0] =
      context.builder.create(Op::rotary, {dy, node.operand(1), node.operand(2)}, back)->result();
}

/// Elements of a vector are mixed. The angles of a vector may belong to its sample.
BatchFact batchOfRotary(const Node &node, llvm::ArrayRef<BatchFact> operands, unsigned) {
  const Type &type = node.result()->type();
  BatchFact fact = operands[0];
  for (unsigned i = 1; i <= 2; ++i)
    fact = join(fact, broadcastBatch(operands[i], node.operand(i)->type(), type));
  return hasPosition(fact) && fact.position.axis == type.rank() - 1 ? lostBatch : fact;
}

} // namespace

const OpInfo rotaryInfo = {
    .name = "rotary",
    .doc = "x * cos + (-second half of x, first half of x) * sin along the last axis: the pair (x[j], x[j + D/2]) is "
           "turned; with transposed, by the transpose of that. Linear in x; cos and sin have no derivative. (C1) x is "
           "float with 1 to 4 axes, the last one even. (C2) cos and sin have one type. (C3) They have the dtype and "
           "last axis of x and broadcast to it.",
    .operandNames = rotaryNames,
    .traits = pure,
    .makeAttributes = makeAttributes<RotaryAttributes>,
    .infer = inferRotary,
    .evaluate = evaluateRotary,
    .vjp = differentiateRotary,
    .cost =
        [](const Node &node) {
          constexpr double flopsPerElement = 3;
          return costWithFlops(node, flopsPerElement * static_cast<double>(node.result()->type().elements()));
        },
    .computeClass = ComputeClass::move,
    .stages = everyStage,
    .batch = batchOfRotary,
};

} // namespace fsdpc
