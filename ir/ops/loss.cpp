// Losses over class labels: one term per position. Sums, means and sample weights are built from other ops.
#include "ir/ops/loss.h"
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"
#include <cmath>
#include <limits>

namespace fsdpc {

namespace {

constexpr llvm::StringRef crossEntropyNames[] = {"logits", "labels"};
constexpr llvm::StringRef crossEntropyGradNames[] = {"dterms", "logits", "labels", "lse"};
constexpr llvm::StringRef nllNames[] = {"log_probs", "labels"};
constexpr llvm::StringRef nllGradNames[] = {"dterms", "log_probs", "labels"};

/// The checks on scores [R...,C] and labels [R...] that all four ops share.
llvm::Error checkScores(const OpInfo &info, const Type &scores, const Type &labels) {
  if (scores.rank() < 1 || !isFloat(scores.dtype()) || scores.dim(-1) < 1)
    return constraintError(info.name, "C1",
                           "scores are float with one class or more on their last axis, but are " + toString(scores));
  if (labels != Type(DType::i64, scores.shape().drop_back()))
    return constraintError(info.name, "C2",
                           "labels are i64" + shapeText(scores.shape().drop_back()) + " but are " + toString(labels));
  return llvm::Error::success();
}

Type termsType(const Type &scores) { return Type(DType::f32, scores.shape().drop_back()); }

llvm::Error checkNoSmoothing(const OpInfo &info, const LossAttributes &attributes) {
  if (attributes.labelSmoothing == 0)
    return llvm::Error::success();
  return constraintError(info.name, "C3",
                         "nll has no label_smoothing, but it is " + doubleText(attributes.labelSmoothing));
}

/// Checks a cotangent or statistic with one value per position.
llvm::Error checkPerPosition(const OpInfo &info, llvm::StringRef name, const Type &type, const Type &scores) {
  if (type == termsType(scores))
    return llvm::Error::success();
  return constraintError(info.name, "C4",
                         name + " is " + llvm::Twine(toString(termsType(scores))) + " but is " + toString(type));
}

llvm::Error inferCrossEntropy(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                              llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = crossEntropyInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkScores(info, operands[0], operands[1]))
    return error;
  if (llvm::Error error = checkSmoothing(info, attributesOf<LossAttributes>(attributes)))
    return error;
  results.append({termsType(operands[0]), termsType(operands[0])});
  return llvm::Error::success();
}

llvm::Error inferCrossEntropyGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                                  llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = crossEntropyGradInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkScores(info, operands[1], operands[2]))
    return error;
  if (llvm::Error error = checkSmoothing(info, attributesOf<LossAttributes>(attributes)))
    return error;
  if (llvm::Error error = checkPerPosition(info, "dterms", operands[0], operands[1]))
    return error;
  if (llvm::Error error = checkPerPosition(info, "lse", operands[3], operands[1]))
    return error;
  results.push_back(operands[1]);
  return llvm::Error::success();
}

llvm::Error inferNll(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                     llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = nllInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkScores(info, operands[0], operands[1]))
    return error;
  if (llvm::Error error = checkNoSmoothing(info, attributesOf<LossAttributes>(attributes)))
    return error;
  results.push_back(termsType(operands[0]));
  return llvm::Error::success();
}

llvm::Error inferNllGrad(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  const OpInfo &info = nllGradInfo;
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (llvm::Error error = checkScores(info, operands[1], operands[2]))
    return error;
  if (llvm::Error error = checkNoSmoothing(info, attributesOf<LossAttributes>(attributes)))
    return error;
  if (llvm::Error error = checkPerPosition(info, "dterms", operands[0], operands[1]))
    return error;
  results.push_back(operands[1]);
  return llvm::Error::success();
}

/// The result for a label that is no class. Programs reject such data when they load it, so the evaluator only has to
/// make it visible.
constexpr double noClass = std::numeric_limits<double>::quiet_NaN();

bool isClass(double label, int64_t classes) { return label >= 0 && label < static_cast<double>(classes); }

void evaluateCrossEntropy(EvaluateContext &context) {
  const HostTensor &logits = *context.operands[0];
  const int64_t classes = logits.type.dim(-1);
  for (size_t row = 0; row < context.operands[1]->values.size(); ++row) {
    const llvm::ArrayRef<double> z(logits.values.data() + row * classes, classes);
    const double lse = logSumExp(z);
    context.results[0].values[row] =
        crossEntropyTerm(context.get<LossAttributes>(), z, context.operands[1]->values[row], lse);
    context.results[1].values[row] = lse;
  }
}

void evaluateCrossEntropyGrad(EvaluateContext &context) {
  const HostTensor &logits = *context.operands[1];
  const int64_t classes = logits.type.dim(-1);
  for (size_t row = 0; row < context.operands[2]->values.size(); ++row)
    crossEntropySlopes(context.get<LossAttributes>(), {logits.values.data() + row * classes, size_t(classes)},
                       context.operands[2]->values[row], context.operands[3]->values[row],
                       context.operands[0]->values[row],
                       {context.results[0].values.data() + row * classes, size_t(classes)});
}

void evaluateNll(EvaluateContext &context) {
  const HostTensor &logProbs = *context.operands[0];
  const int64_t classes = logProbs.type.dim(-1);
  for (size_t row = 0; row < context.operands[1]->values.size(); ++row) {
    const double label = context.operands[1]->values[row];
    if (label == static_cast<double>(context.get<LossAttributes>().ignoreIndex))
      continue;
    context.results[0].values[row] =
        isClass(label, classes) ? -logProbs.values[row * classes + static_cast<int64_t>(label)] : noClass;
  }
}

void evaluateNllGrad(EvaluateContext &context) {
  const int64_t classes = context.operands[1]->type.dim(-1);
  for (size_t row = 0; row < context.operands[2]->values.size(); ++row) {
    const double label = context.operands[2]->values[row];
    if (label == static_cast<double>(context.get<LossAttributes>().ignoreIndex))
      continue;
    if (isClass(label, classes))
      context.results[0].values[row * classes + static_cast<int64_t>(label)] = -context.operands[0]->values[row];
    else
      std::fill_n(context.results[0].values.begin() + row * classes, classes, noClass);
  }
}

void differentiateCrossEntropy(VjpContext &context) {
  assert(!context.resultCotangents[1] && "lse is kept for the derivative only; nothing else reads it");
  const Node &node = context.node;
  if (Value *dterms = context.resultCotangents[0]; dterms && context.needed[0])
    context.operandCotangents[0] =
        context.builder
            .create(Op::crossEntropyGrad, {dterms, node.operand(0), node.operand(1), node.result(1)},
                    node.get<LossAttributes>())
            ->result();
}

void differentiateNll(VjpContext &context) {
  const Node &node = context.node;
  if (Value *dterms = context.resultCotangents[0]; dterms && context.needed[0])
    context.operandCotangents[0] =
        context.builder.create(Op::nllGrad, {dterms, node.operand(0), node.operand(1)}, node.get<LossAttributes>())
            ->result();
}

/// Maximum, subtraction, exponential and sum of each score.
Cost costOfScores(const Node &node, unsigned scores) {
  return costWithFlops(node, 4 * static_cast<double>(node.operand(scores)->type().elements()));
}

/// The classes are summed over.
int64_t axisOfTerms(const Node &node, unsigned, int64_t axis) {
  return axis < node.operand(0)->type().rank() - 1 ? axis : -1;
}

} // namespace

llvm::Error checkSmoothing(const OpInfo &info, const LossAttributes &attributes) {
  if (attributes.labelSmoothing >= 0 && attributes.labelSmoothing <= 1)
    return llvm::Error::success();
  return constraintError(info.name, "C3",
                         "label_smoothing must be in [0, 1] but is " + doubleText(attributes.labelSmoothing));
}

double logSumExp(llvm::ArrayRef<double> z) {
  double largest = -std::numeric_limits<double>::infinity();
  for (double value : z)
    largest = std::max(largest, value);
  double sum = 0;
  for (double value : z)
    sum += std::exp(value - largest);
  return largest + std::log(sum);
}

double crossEntropyTerm(const LossAttributes &attributes, llvm::ArrayRef<double> z, double label, double lse) {
  const double smoothing = attributes.labelSmoothing;
  if (label == static_cast<double>(attributes.ignoreIndex))
    return 0;
  double term = isClass(label, z.size()) ? (1 - smoothing) * (lse - z[static_cast<int64_t>(label)]) : noClass;
  // Skipped rather than multiplied by zero: a logit of -inf must not turn an unsmoothed term into NaN.
  for (size_t c = 0; smoothing != 0 && c < z.size(); ++c)
    term += smoothing / static_cast<double>(z.size()) * (lse - z[c]);
  return term;
}

void crossEntropySlopes(const LossAttributes &attributes, llvm::ArrayRef<double> z, double label, double lse,
                        double dterm, llvm::MutableArrayRef<double> slopes) {
  const double smoothing = attributes.labelSmoothing;
  const bool ignored = label == static_cast<double>(attributes.ignoreIndex);
  for (size_t c = 0; c < z.size(); ++c) {
    double target = smoothing / static_cast<double>(z.size()) + (label == static_cast<double>(c) ? 1 - smoothing : 0);
    double slope = isClass(label, z.size()) ? dterm * (std::exp(z[c] - lse) - target) : noClass;
    slopes[c] = ignored ? 0 : slope;
  }
}

const OpInfo crossEntropyInfo = {
    .name = "cross_entropy",
    .doc = "terms f32[R...] of logits [R...,C] and labels: (1 - s) * (lse - logits[label]) + s / C * sum over c of "
           "(lse - logits[c]) "
           "with s = label_smoothing, 0 where label = ignore_index; lse f32[R...] = log(sum of exp(logits)), kept for "
           "the derivative "
           "only. (C1) logits are float with one class or more. (C2) labels are i64[R...]; those not ignored lie in "
           "[0, C), which "
           "only a run can check. (C3) label_smoothing is in [0, 1].",
    .operandNames = crossEntropyNames,
    .traits = pure,
    .makeAttributes = makeAttributes<LossAttributes>,
    .infer = inferCrossEntropy,
    .evaluate = evaluateCrossEntropy,
    .vjp = differentiateCrossEntropy,
    .cost = [](const Node &node) { return costOfScores(node, 0); },
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = batchByAxis<axisOfTerms>,
};

const OpInfo crossEntropyGradInfo = {
    .name = "cross_entropy_grad",
    .doc = "The cotangent of cross_entropy's logits: dterms * (exp(logits - lse) - target), 0 where label = "
           "ignore_index. (C1) to (C3) "
           "as cross_entropy. (C4) dterms and lse are f32[R...].",
    .operandNames = crossEntropyGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<LossAttributes>,
    .infer = inferCrossEntropyGrad,
    .evaluate = evaluateCrossEntropyGrad,
    .vjp = notDifferentiable,
    .cost = [](const Node &node) { return costOfScores(node, 1); },
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = losesBatch,
};

const OpInfo nllInfo = {
    .name = "nll",
    .doc = "terms f32[R...] = -log_probs[label] of log_probs [R...,C] and labels, 0 where label = ignore_index. (C1) "
           "log_probs are float "
           "with one class or more. (C2) labels are i64[R...]; those not ignored lie in [0, C), which only a run can "
           "check. (C3) "
           "label_smoothing is 0.",
    .operandNames = nllNames,
    .traits = pure,
    .makeAttributes = makeAttributes<LossAttributes>,
    .infer = inferNll,
    .evaluate = evaluateNll,
    .vjp = differentiateNll,
    .cost = costOfTypes,
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = batchByAxis<axisOfTerms>,
};

const OpInfo nllGradInfo = {
    .name = "nll_grad",
    .doc = "The cotangent of nll's log_probs: -dterms at the label, 0 elsewhere and where label = ignore_index; of "
           "log_probs only the "
           "type counts. (C1) to (C3) as nll. (C4) dterms are f32[R...].",
    .operandNames = nllGradNames,
    .traits = pure,
    .makeAttributes = makeAttributes<LossAttributes>,
    .infer = inferNllGrad,
    .evaluate = evaluateNllGrad,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::softmax,
    .stages = everyStage,
    .batch = losesBatch,
};

} // namespace fsdpc
