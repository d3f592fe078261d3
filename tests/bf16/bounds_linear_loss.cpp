// linear_cross_entropy and its derivative: logits are sums that are rounded; losses and derivatives follow from them.
#include "ir/ops/helpers.h"
#include "tests/bf16/bounds.h"

namespace fsdpc::rounding {

namespace {

/// The operands, from the position of `hidden` on.
class Positions {
public:
  Positions(const Node &node, llvm::ArrayRef<const HostTensor *> operands, unsigned first)
      : own(node.get<LinearLossAttributes>()), hidden(*operands[first]), weight(*operands[first + 1]),
        labels(*operands[first + 2]), bias(operands.size() > first + 3 ? operands[first + 3] : nullptr),
        width(hidden.type.dim(-1)), classes(weight.type.dim(own.transposeB ? 0 : 1)), dtype(hidden.type.dtype()) {}

  std::vector<Tracked> logitsOf(size_t row) const {
    std::vector<Tracked> logits;
    for (int64_t c = 0; c < classes; ++c) {
      Sum sum;
      if (bias)
        sum.add(bias->values[c]);
      for (int64_t k = 0; k < width; ++k)
        sum.add(Tracked(hidden.values[row * width + k]) * weight.values[weightAt(k, c)]);
      Tracked z = stored(sum.total(), dtype);
      if (own.softcap > 0)
        z = stored(hyperbolicTangent(z / asFloat(own.softcap)) * asFloat(own.softcap), dtype);
      logits.push_back(z);
    }
    return logits;
  }
  static Tracked logSumExp(llvm::ArrayRef<Tracked> logits) {
    Tracked largest = logits[0];
    for (const Tracked &z : logits)
      largest = z.value > largest.value ? z : largest;
    Sum sum;
    for (const Tracked &z : logits)
      sum.add(exponential(z - largest));
    return largest + logarithm(sum.total());
  }
  Tracked termOf(size_t row, llvm::ArrayRef<Tracked> logits, Tracked lse) const {
    const double label = labels.values[row], smoothing = own.loss.labelSmoothing;
    if (label == static_cast<double>(own.loss.ignoreIndex))
      return 0;
    Sum term;
    term.add(asFloat(1 - smoothing) * (lse - logits[static_cast<size_t>(label)]));
    for (int64_t c = 0; smoothing != 0 && c < classes; ++c)
      term.add(asFloat(smoothing / static_cast<double>(classes)) * (lse - logits[c]));
    return term.total();
  }
  /// The derivative by a logit of the matmul, rounded.
  Tracked slopeOf(size_t row, int64_t c, Tracked logit, Tracked lse, double dterm) const {
    const double label = labels.values[row], smoothing = own.loss.labelSmoothing;
    if (label == static_cast<double>(own.loss.ignoreIndex))
      return 0;
    const double target =
        smoothing / static_cast<double>(classes) + (label == static_cast<double>(c) ? 1 - smoothing : 0);
    Tracked slope = Tracked(dterm) * (exponential(logit - lse) - asFloat(target));
    if (own.softcap > 0) {
      const Tracked ratio = logit / asFloat(own.softcap);
      slope = slope * (Tracked(1) - ratio * ratio);
    }
    return stored(slope, dtype);
  }
  int64_t weightAt(int64_t k, int64_t c) const { return own.transposeB ? c * width + k : k * classes + c; }

  const LinearLossAttributes &own;
  const HostTensor &hidden, &weight, &labels;
  const HostTensor *bias;
  int64_t width, classes;
  DType dtype;
};

/// Any class is allowed if errors decide which logit is the largest.
double errorOfClass(llvm::ArrayRef<Tracked> logits) {
  size_t largest = 0;
  for (size_t c = 1; c < logits.size(); ++c)
    largest = logits[c].value > logits[largest].value ? c : largest;
  for (size_t c = 0; c < logits.size(); ++c) {
    const double reach = logits[c].error + logits[largest].error;
    if (c != largest && reach > 0 && logits[c].value + reach >= logits[largest].value)
      return static_cast<double>(logits.size());
  }
  return 0;
}

Errors errorsOfForward(const Positions &positions) {
  Errors errors(2, std::vector<double>(positions.labels.values.size()));
  for (size_t row = 0; row < positions.labels.values.size(); ++row) {
    const std::vector<Tracked> logits = positions.logitsOf(row);
    errors[0][row] = positions.termOf(row, logits, Positions::logSumExp(logits)).error;
    errors[1][row] = errorOfClass(logits);
  }
  return errors;
}

Errors errorsOfGrad(const Node &node, const Positions &positions, const HostTensor &dterms) {
  const size_t rows = positions.labels.values.size();
  Errors errors(node.resultCount());
  std::vector<Sum> dweight(positions.weight.values.size()), dbias(positions.classes);
  for (size_t row = 0; row < rows; ++row) {
    const std::vector<Tracked> logits = positions.logitsOf(row);
    const Tracked lse = Positions::logSumExp(logits);
    errors[0].push_back(positions.termOf(row, logits, lse).error);
    std::vector<Sum> dhidden(positions.width);
    for (int64_t c = 0; c < positions.classes; ++c) {
      const Tracked slope = positions.slopeOf(row, c, logits[c], lse, dterms.values[row]);
      dbias[c].add(slope);
      for (int64_t k = 0; k < positions.width; ++k) {
        dhidden[k].add(slope * positions.weight.values[positions.weightAt(k, c)]);
        dweight[positions.weightAt(k, c)].add(slope * positions.hidden.values[row * positions.width + k]);
      }
    }
    for (const Sum &sum : dhidden)
      errors[1].push_back(sum.total().error);
  }
  for (unsigned i = 2; i < node.resultCount(); ++i)
    for (const Sum &sum : i == 2 ? dweight : dbias)
      errors[i].push_back(sum.total().error);
  return errors;
}

} // namespace

Errors errorsOfLinearLoss(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  if (node.op() == Op::linearCrossEntropy)
    return errorsOfForward(Positions(node, operands, 0));
  return errorsOfGrad(node, Positions(node, operands, 1), *operands[0]);
}

} // namespace fsdpc::rounding
