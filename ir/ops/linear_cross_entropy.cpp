// The cross entropy of a linear layer's scores. The scores of all positions are never values: programs compute them for
// `chunk` positions at a time (arXiv 2411.09009, arXiv 2410.10989).
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include "ir/ops/loss.h"
#include <cmath>

namespace fsdpc {

namespace {

constexpr llvm::StringRef forwardNames[] = {"hidden", "weight", "labels", "bias?"};
constexpr llvm::StringRef gradNames[] = {"dterms", "hidden", "weight", "labels", "bias?"};

/// The sizes of a loss whose operands begin with `hidden`.
struct Sizes {
  int64_t rows, width, classes;
  Sizes(const Type &hidden, const Type &weight, bool transposeB)
      : rows(hidden.elements() / std::max<int64_t>(1, hidden.dim(-1))), width(hidden.dim(-1)),
        classes(weight.dim(transposeB ? 0 : 1)) {}
};

Type termsType(const Type &hidden) { return Type(DType::f32, hidden.shape().drop_back()); }

llvm::Error checkBias(const OpInfo &info, const Type &bias, const Type &hidden, int64_t classes) {
  if (bias == Type(hidden.dtype(), {classes}))
    return llvm::Error::success();
  return constraintError(info.name, "C4",
                         "a bias is " + toString(Type(hidden.dtype(), {classes})) + " but is " +
                             llvm::Twine(toString(bias)));
}

/// The checks that both ops share. `operands` begin with hidden.
llvm::Error checkLoss(const OpInfo &info, llvm::ArrayRef<Type> operands, const LinearLossAttributes &attributes) {
  const Type &hidden = operands[0], &weight = operands[1], &labels = operands[2];
  if (hidden.rank() < 2 || weight.rank() != 2 || !isFloat(hidden.dtype()) || hidden.dtype() != weight.dtype() ||
      hidden.dim(-1) != weight.dim(attributes.transposeB ? 1 : 0) || hidden.dim(-1) < 1 || weight.elements() == 0)
    return constraintError(info.name, "C1",
                           "hidden and weight are float matrices of one dtype with equal inner dims: " +
                               toString(hidden) + " x " + toString(weight));
  if (labels != Type(DType::i64, hidden.shape().drop_back()))
    return constraintError(info.name, "C2",
                           "labels are i64" + shapeText(hidden.shape().drop_back()) + " but are " + toString(labels));
  if (llvm::Error error = checkSmoothing(info, attributes.loss))
    return error;
  if (operands.size() == 4)
    if (llvm::Error error = checkBias(info, operands[3], hidden, Sizes(hidden, weight, attributes.transposeB).classes))
      return error;
  if (attributes.chunk < 1 || !(attributes.softcap >= 0) || !std::isfinite(attributes.softcap))
    return constraintError(info.name, "C5",
                           "chunk is at least 1, softcap at least 0, but they are " + llvm::Twine(attributes.chunk) +
                               " and " + doubleText(attributes.softcap));
  return llvm::Error::success();
}

llvm::Error infer(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                  llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = linearCrossEntropyInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkLoss(info, operands, attributesOf<LinearLossAttributes>(attributes)))
    return error;
  results.append({termsType(operands[0]), operands[2]});
  return llvm::Error::success();
}

llvm::Error inferGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = linearCrossEntropyGradInfo;
  const auto &own = attributesOf<LinearLossAttributes>(attributes);
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkLoss(info, operands.drop_front(), own))
    return error;
  const Type &hidden = operands[1];
  if (operands[0] != termsType(hidden))
    return constraintError(info.name, "C6",
                           "dterms are " + toString(termsType(hidden)) + " but are " + toString(operands[0]));
  results.append({termsType(hidden), hidden});
  if (own.frozenWeight)
    return llvm::Error::success();
  const DType sum = isHalf(hidden.dtype()) ? DType::f32 : hidden.dtype();
  results.push_back(operands[2].withDType(sum));
  if (operands.size() == 5)
    results.push_back(operands[4].withDType(sum));
  return llvm::Error::success();
}

/// Computes one position after the other.
class Positions {
public:
  /// `first`: the position of operand `hidden`.
  Positions(const EvaluateContext &context, unsigned first)
      : own(context.get<LinearLossAttributes>()), hidden(*context.operands[first]),
        weight(*context.operands[first + 1]), labels(*context.operands[first + 2]),
        bias(context.operands.size() > first + 3 ? context.operands[first + 3] : nullptr),
        sizes(hidden.type, weight.type, own.transposeB), logits(Type(hidden.type.dtype(), {sizes.classes})) {}

  /// The capped logits of a position, each rounded to the type of its operands.
  llvm::ArrayRef<double> logitsOf(int64_t row) {
    for (int64_t c = 0; c < sizes.classes; ++c) {
      double sum = bias ? bias->values[c] : 0;
      for (int64_t k = 0; k < sizes.width; ++k)
        sum += hidden.values[row * sizes.width + k] * weight.values[weightAt(k, c)];
      logits.values[c] = sum;
    }
    roundToDType(logits);
    if (own.softcap > 0) {
      for (double &z : logits.values)
        z = own.softcap * std::tanh(z / own.softcap);
      roundToDType(logits);
    }
    return logits.values;
  }
  int64_t weightAt(int64_t k, int64_t c) const { return own.transposeB ? c * sizes.width + k : k * sizes.classes + c; }
  double label(int64_t row) const { return labels.values[row]; }

  const LinearLossAttributes &own;
  const HostTensor &hidden, &weight, &labels;
  const HostTensor *bias;
  const Sizes sizes;

private:
  HostTensor logits;
};

void evaluate(EvaluateContext &context) {
  Positions positions(context, 0);
  for (int64_t row = 0; row < positions.sizes.rows; ++row) {
    llvm::ArrayRef<double> z = positions.logitsOf(row);
    context.results[0].values[row] = crossEntropyTerm(positions.own.loss, z, positions.label(row), logSumExp(z));
    context.results[1].values[row] = static_cast<double>(std::max_element(z.begin(), z.end()) - z.begin());
  }
}

void evaluateGrad(EvaluateContext &context) {
  Positions positions(context, 1);
  const Sizes &sizes = positions.sizes;
  HostTensor slopes(Type(positions.hidden.type.dtype(), {sizes.classes}));
  double *dhidden = context.results[1].values.data();
  double *dweight = positions.own.frozenWeight ? nullptr : context.results[2].values.data();
  double *dbias = dweight && positions.bias ? context.results[3].values.data() : nullptr;
  for (int64_t row = 0; row < sizes.rows; ++row) {
    llvm::ArrayRef<double> z = positions.logitsOf(row);
    const double lse = logSumExp(z), cap = positions.own.softcap;
    context.results[0].values[row] = crossEntropyTerm(positions.own.loss, z, positions.label(row), lse);
    crossEntropySlopes(positions.own.loss, z, positions.label(row), lse, context.operands[0]->values[row],
                       slopes.values);
    for (int64_t c = 0; cap > 0 && c < sizes.classes; ++c)
      slopes.values[c] *= 1 - z[c] / cap * (z[c] / cap);
    roundToDType(slopes);
    for (int64_t c = 0; c < sizes.classes; ++c) {
      for (int64_t k = 0; k < sizes.width; ++k) {
        dhidden[row * sizes.width + k] += slopes.values[c] * positions.weight.values[positions.weightAt(k, c)];
        if (dweight)
          dweight[positions.weightAt(k, c)] += slopes.values[c] * positions.hidden.values[row * sizes.width + k];
      }
      if (dbias)
        dbias[c] += slopes.values[c];
    }
  }
}

void differentiate(VjpContext &context) {
  assert(!context.resultCotangents[1] && "a class has no derivative");
  Value *dterms = context.resultCotangents[0];
  const bool hasBias = context.node.operandCount() == 4;
  if (!dterms || !(context.needed[0] || context.needed[1] || (hasBias && context.needed[3])))
    return;
  LinearLossAttributes attributes = context.node.get<LinearLossAttributes>();
  attributes.frozenWeight = !context.needed[1] && !(hasBias && context.needed[3]);
  llvm::SmallVector<Value *, 5> operands = {dterms};
  for (Value *operand : context.node.operands())
    operands.push_back(operand);
  Node *grad = context.builder.create(Op::linearCrossEntropyGrad, operands, attributes);
  context.operandCotangents[0] = context.needed[0] ? grad->result(1) : nullptr;
  if (attributes.frozenWeight)
    return;
  const DType dtype = context.node.operand(1)->type().dtype();
  context.operandCotangents[1] = context.needed[1] ? context.builder.cast(grad->result(2), dtype) : nullptr;
  if (hasBias)
    context.operandCotangents[3] = context.needed[3] ? context.builder.cast(grad->result(3), dtype) : nullptr;
}

/// The matmul of the logits, which are written, then read for the largest and the sum of exponentials. Every chunk
/// reads the weight.
Cost costOfForward(const Node &node, unsigned hidden) {
  const auto &own = node.get<LinearLossAttributes>();
  const Type &weight = node.operand(hidden + 1)->type();
  const Sizes sizes(node.operand(hidden)->type(), weight, own.transposeB);
  const auto logits = static_cast<double>(sizes.rows) * static_cast<double>(sizes.classes);
  const auto chunks = static_cast<double>((sizes.rows + own.chunk - 1) / own.chunk);
  Cost cost = costWithFlops(node, logits * (2 * static_cast<double>(sizes.width) + 4));
  const double bytes = logits * static_cast<double>(byteSize(weight.dtype()));
  cost.bytesWritten += bytes;
  cost.bytesRead += bytes + std::max(0.0, chunks - 1) * static_cast<double>(weight.bytes());
  return cost;
}

/// Also the derivatives of logits, in place, and two matmuls that read them. Every chunk reads the weight again, and
/// all but the first add to its derivative.
Cost costOfGrad(const Node &node) {
  const auto &own = node.get<LinearLossAttributes>();
  const Type &weight = node.operand(2)->type();
  const Sizes sizes(node.operand(1)->type(), weight, own.transposeB);
  const auto logits = static_cast<double>(sizes.rows) * static_cast<double>(sizes.classes);
  const auto chunks = static_cast<double>((sizes.rows + own.chunk - 1) / own.chunk);
  const double matmuls = own.frozenWeight ? 1 : 2;
  Cost cost = costOfForward(node, 1);
  cost.flops += logits * (2 * matmuls * static_cast<double>(sizes.width) + 4);
  const double bytes = logits * static_cast<double>(byteSize(weight.dtype()));
  const double added =
      own.frozenWeight ? 0 : std::max(0.0, chunks - 1) * static_cast<double>(node.result(2)->type().bytes());
  cost.bytesWritten += bytes + added;
  cost.bytesRead += bytes * (1 + matmuls) + chunks * static_cast<double>(weight.bytes()) + added;
  return cost;
}

int64_t axisOfTerms(const Node &node, unsigned operand, int64_t axis) {
  const bool isOfPosition = operand == 2 || (operand == 0 && axis < node.operand(0)->type().rank() - 1);
  return isOfPosition ? axis : -1;
}

} // namespace

int64_t classesOf(const Node &linearLoss) {
  const Type &weight = linearLoss.operand(linearLoss.op() == Op::linearCrossEntropyGrad ? 2 : 1)->type();
  return weight.dim(linearLoss.get<LinearLossAttributes>().transposeB ? 0 : 1);
}

constinit const OpInfo linearCrossEntropyInfo = {
    .name = "linear_cross_entropy",
    .doc = "cross_entropy of logits = hidden [R...,D] weight [D,C] + bias, each rounded to the operands' type and then "
           "softcap * tanh(logits / softcap), rounded too, if softcap > 0: terms f32[R...] as cross_entropy defines "
           "them, and the class i64[R...] of the largest logit, the first of equals. weight is [C,D] with "
           "transpose_b. Logits of `chunk` positions exist at once. (C1) hidden and weight have one float dtype and "
           "equal inner dims. (C2) labels are i64[R...]; those not ignored lie in [0, C), which only a run can check. "
           "(C3) label_smoothing is in [0, 1]. (C4) A bias has one element per class, of the operands' dtype. (C5) "
           "chunk >= 1, softcap >= 0.",
    .operandNames = forwardNames,
    .traits = pure,
    .makeAttributes = makeAttributes<LinearLossAttributes>,
    .infer = infer,
    .evaluate = evaluate,
    .vjp = differentiate,
    .cost = [](const Node &node) { return costOfForward(node, 0); },
    .computeClass = ComputeClass::matmul,
    .stages = everyStage,
    .batch = batchByAxis<axisOfTerms>,
};

constinit const OpInfo linearCrossEntropyGradInfo = {
    .name = "linear_cross_entropy_grad",
    .doc = "The terms of linear_cross_entropy, and the cotangents of hidden, weight and bias; the last two not with "
           "frozen_weight. Those of logits, as cross_entropy_grad defines them (times 1 - (logits / softcap)^2), are "
           "rounded to the operands' type. Those of weight and bias are sums over positions, added chunk by chunk, in "
           "f32 for operands of 16 bits. (C1) to (C5) as linear_cross_entropy. (C6) dterms are f32[R...].",
    .operandNames = gradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<LinearLossAttributes>,
    .infer = inferGrad,
    .evaluate = evaluateGrad,
    .vjp = notDifferentiable,
    .cost = costOfGrad,
    .computeClass = ComputeClass::matmul,
    .stages = everyStage,
    .batch = losesBatch,
};

} // namespace fsdpc
