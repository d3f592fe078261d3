// Norms, softmax and losses: a row has statistics, which are sums, and elements computed from them. For batch norm a
// channel is the row.
#include "ir/ops/helpers.h"
#include "ir/ops/norm.h"
#include "tests/bf16/bounds.h"

namespace fsdpc::rounding {

namespace {

/// The elements along one axis through one point of the other axes.
struct Line {
  int64_t begin, count, stride;
  int64_t at(int64_t i) const { return begin + i * stride; }
};

template <class Body>
void forEachLine(const Type &type, int64_t axis, Body body) {
  const int64_t stride = productOf(type.shape(), axis + 1, type.rank());
  const int64_t outer = productOf(type.shape(), 0, axis);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < stride; ++i)
      body(Line{o * type.dim(axis) * stride + i, type.dim(axis), stride});
}

/// log of the sum of exp, with the largest subtracted first.
Tracked logSumExp(const std::vector<double> &x, const Line &line) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < line.count; ++i)
    largest = std::max(largest, x[line.at(i)]);
  if (!std::isfinite(largest))
    return largest;
  Sum sum;
  for (int64_t i = 0; i < line.count; ++i)
    sum.add(exponential(Tracked(x[line.at(i)]) - largest));
  return Tracked(largest) + logarithm(sum.total());
}

Errors errorsOfSoftmax(const Node &node, const HostTensor &x) {
  Errors errors(1, std::vector<double>(x.values.size()));
  forEachLine(x.type, node.get<AxisAttributes>().axis, [&](const Line &line) {
    const Tracked lse = logSumExp(x.values, line);
    for (int64_t i = 0; i < line.count; ++i) {
      const Tracked logarithmic = Tracked(x.values[line.at(i)]) - lse;
      errors[0][line.at(i)] = node.op() == Op::logSoftmax ? logarithmic.error : exponential(logarithmic).error;
    }
  });
  return errors;
}

Errors errorsOfSoftmaxGrad(const Node &node, const HostTensor &y, const HostTensor &dy) {
  Errors errors(1, std::vector<double>(y.values.size()));
  const bool isLogarithmic = node.op() == Op::logSoftmaxGrad;
  forEachLine(y.type, node.get<AxisAttributes>().axis, [&](const Line &line) {
    Sum sum;
    for (int64_t i = 0; i < line.count; ++i)
      sum.add(isLogarithmic ? Tracked(dy.values[line.at(i)])
                            : Tracked(y.values[line.at(i)]) * Tracked(dy.values[line.at(i)]));
    for (int64_t i = 0; i < line.count; ++i) {
      const Tracked own = y.values[line.at(i)], slope = dy.values[line.at(i)];
      const Tracked result = isLogarithmic ? slope - exponential(own) * sum.total() : own * (slope - sum.total());
      errors[0][line.at(i)] = result.error;
    }
  });
  return errors;
}

Errors errorsOfCrossEntropy(const Node &node, const HostTensor &logits, const HostTensor &labels) {
  const int64_t classes = logits.type.dim(-1);
  const double smoothing = node.get<LossAttributes>().labelSmoothing;
  Errors errors(2, std::vector<double>(labels.values.size()));
  for (size_t row = 0; row < labels.values.size(); ++row) {
    const Line line{static_cast<int64_t>(row) * classes, classes, 1};
    const Tracked lse = logSumExp(logits.values, line);
    errors[1][row] = lse.error;
    if (labels.values[row] < 0 || labels.values[row] >= static_cast<double>(classes))
      continue;
    Sum term;
    term.add(asFloat(1 - smoothing) * (lse - logits.values[line.at(static_cast<int64_t>(labels.values[row]))]));
    for (int64_t i = 0; smoothing != 0 && i < classes; ++i)
      term.add(asFloat(smoothing / static_cast<double>(classes)) * (lse - logits.values[line.at(i)]));
    errors[0][row] = term.total().error;
  }
  return errors;
}

Errors errorsOfCrossEntropyGrad(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const HostTensor &logits = *operands[1];
  const auto classes = static_cast<size_t>(logits.type.dim(-1));
  const double smoothing = node.get<LossAttributes>().labelSmoothing;
  Errors errors(1, std::vector<double>(logits.values.size()));
  for (size_t i = 0; i < logits.values.size(); ++i) {
    const size_t row = i / classes;
    const bool isLabel = operands[2]->values[row] == static_cast<double>(i % classes);
    const double target = smoothing / static_cast<double>(classes) + (isLabel ? 1 - smoothing : 0);
    const Tracked probability = exponential(Tracked(logits.values[i]) - operands[3]->values[row]);
    errors[0][i] = (Tracked(operands[0]->values[row]) * (probability - asFloat(target))).error;
  }
  return errors;
}

/// One row of a norm and what its kernels compute from it; x is what is normalised.
struct NormRow {
  const double *x;
  int64_t count;
  bool isCentered; ///< layer_norm

  Tracked mean() const {
    Sum sum;
    for (int64_t i = 0; isCentered && i < count; ++i)
      sum.add(x[i]);
    return isCentered ? sum.total() / Tracked(static_cast<double>(count)) : Tracked(0);
  }
  /// A mean with error e adds e^2 to the variance, since deviations from the true mean cancel. So each deviation is
  /// computed from the value of that mean, and rounded.
  Tracked reciprocalDeviation(Tracked mean, double epsilon) const {
    Sum squares;
    for (int64_t i = 0; i < count; ++i) {
      const Tracked centered = Tracked(x[i]) - Tracked(mean.value);
      squares.add(centered * centered);
    }
    Tracked variance = squares.total() / Tracked(static_cast<double>(count));
    variance.error += mean.error * mean.error;
    return Tracked(1) / squareRoot(variance + asFloat(epsilon));
  }
};

/// x, or its sum with a residual, which is a separate result.
const HostTensor &normalisedOf(const Node &node, llvm::ArrayRef<const HostTensor *> operands,
                               llvm::ArrayRef<HostTensor> values, HostTensor &sum) {
  if (!addedOperand(node))
    return *operands[0];
  sum = values.back();
  roundToDType(sum);
  return sum;
}

/// Each term of y has a separate error, so that terms which cancel do not hide it in their sum.
Errors errorsOfNorm(const Node &node, llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<HostTensor> values) {
  const auto &attributes = node.get<NormAttributes>();
  const bool isCentered = node.op() == Op::layerNorm;
  HostTensor sum;
  const HostTensor &x = normalisedOf(node, operands, values, sum);
  const int64_t rows = productOf(x.type.shape(), 0, attributes.axis);
  const int64_t count = productOf(x.type.shape(), attributes.axis, x.type.rank());
  Errors errors;
  for (const HostTensor &value : values)
    errors.emplace_back(value.values.size());
  for (int64_t row = 0; row < rows; ++row) {
    const NormRow own{x.values.data() + row * count, count, isCentered};
    const Tracked mean = own.mean(), deviation = own.reciprocalDeviation(mean, attributes.epsilon);
    for (int64_t i = 0; i < count; ++i) {
      Tracked y = (Tracked(own.x[i]) - mean) * deviation * operands[1]->values[i];
      if (isCentered)
        y = y + operands[2]->values[i];
      errors[0][row * count + i] = y.error;
    }
    if (isCentered)
      errors[1][row] = mean.error;
    errors[isCentered ? 2 : 1][row] = deviation.error;
  }
  if (addedOperand(node))
    for (size_t i = 0; i < values.back().values.size(); ++i)
      errors.back()[i] = unitRoundoff * std::fabs(values.back().values[i]);
  return errors;
}

/// The sums of the kernels over a row, and over rows for the scales.
class NormGradient {
public:
  NormGradient(const Node &node, llvm::ArrayRef<const HostTensor *> operands)
      : isCentered(node.op() == Op::layerNormGrad), dy(*operands[0]), x(*operands[1]), gamma(*operands[2]),
        operands(operands), addend(addedOperand(node) ? operands.back() : nullptr),
        count(productOf(x.type.shape(), node.get<NormAttributes>().axis, x.type.rank())), scales(count), shifts(count) {
  }

  Errors errors() {
    Errors all = {std::vector<double>(x.values.size()), {}};
    for (size_t row = 0; row * count < x.values.size(); ++row)
      addRow(row, all[0]);
    for (const Sum &sum : scales)
      all[1].push_back(sum.total().error);
    if (isCentered)
      all.emplace_back();
    for (size_t i = 0; isCentered && i < shifts.size(); ++i)
      all[2].push_back(shifts[i].total().error);
    return all;
  }

private:
  Tracked normalised(size_t row, size_t i) const {
    const Tracked own = x.values[row * count + i];
    return isCentered ? (own - operands[3]->values[row]) * operands[4]->values[row] : own * operands[3]->values[row];
  }

  void addRow(size_t row, std::vector<double> &dx) {
    Sum slopes, products;
    for (size_t i = 0; i < count; ++i) {
      const Tracked slope = Tracked(dy.values[row * count + i]) * gamma.values[i];
      slopes.add(slope);
      products.add(slope * normalised(row, i));
      scales[i].add(Tracked(dy.values[row * count + i]) * normalised(row, i));
      shifts[i].add(dy.values[row * count + i]);
    }
    const auto length = static_cast<double>(count);
    const Tracked average = isCentered ? slopes.total() / length : Tracked(0);
    const Tracked weighted = products.total() / length, deviation = operands[isCentered ? 4 : 3]->values[row];
    for (size_t i = 0; i < count; ++i) {
      Tracked slope = Tracked(dy.values[row * count + i]) * gamma.values[i] - average - normalised(row, i) * weighted;
      slope = deviation * slope;
      if (addend)
        slope = stored(slope, x.type.dtype()) + addend->values[row * count + i];
      dx[row * count + i] = slope.error;
    }
  }

  const bool isCentered;
  const HostTensor &dy, &x, &gamma;
  const llvm::ArrayRef<const HostTensor *> operands;
  const HostTensor *const addend;
  const size_t count;
  std::vector<Sum> scales, shifts;
};

/// Visits the elements of x by channel, axis 1: visit(channel, element).
template <class Visit>
void forEachOfChannels(const Type &x, Visit visit) {
  const int64_t inner = productOf(x.shape(), 2, x.rank());
  for (int64_t i = 0; i < x.elements(); ++i)
    visit(i / inner % x.dim(1), i);
}

std::vector<double> totalErrors(const std::vector<Sum> &sums, double count) {
  std::vector<double> errors;
  for (const Sum &sum : sums)
    errors.push_back((sum.total() / count).error);
  return errors;
}

Errors errorsOfBatchStatistics(const HostTensor &x) {
  const int64_t channels = x.type.dim(1);
  const auto count = static_cast<double>(x.type.elements() / channels);
  std::vector<Sum> sums(channels), squares(channels);
  forEachOfChannels(x.type, [&](int64_t channel, int64_t i) { sums[channel].add(x.values[i]); });
  forEachOfChannels(x.type, [&](int64_t channel, int64_t i) {
    const Tracked centred = Tracked(x.values[i]) - sums[channel].total() / count;
    squares[channel].add(centred * centred);
  });
  return {totalErrors(sums, count), totalErrors(squares, count)};
}

Errors errorsOfBatchNormGrad(const HostTensor &dy, const HostTensor &x, const HostTensor &mean) {
  std::vector<Sum> products(x.type.dim(1)), slopes(x.type.dim(1));
  forEachOfChannels(x.type, [&](int64_t channel, int64_t i) {
    products[channel].add(Tracked(dy.values[i]) * (Tracked(x.values[i]) - mean.values[channel]));
    slopes[channel].add(dy.values[i]);
  });
  return {totalErrors(products, 1), totalErrors(slopes, 1)};
}

} // namespace

Errors errorsOfRows(const Node &node, llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<HostTensor> values) {
  switch (node.op()) {
  case Op::softmax:
  case Op::logSoftmax: return errorsOfSoftmax(node, *operands[0]);
  case Op::softmaxGrad:
  case Op::logSoftmaxGrad: return errorsOfSoftmaxGrad(node, *operands[0], *operands[1]);
  case Op::crossEntropy: return errorsOfCrossEntropy(node, *operands[0], *operands[1]);
  case Op::crossEntropyGrad: return errorsOfCrossEntropyGrad(node, operands);
  case Op::layerNorm:
  case Op::rmsNorm: return errorsOfNorm(node, operands, values);
  case Op::batchStatistics: return errorsOfBatchStatistics(*operands[0]);
  case Op::batchNormGrad: return errorsOfBatchNormGrad(*operands[0], *operands[1], *operands[2]);
  default: return NormGradient(node, operands).errors();
  }
}

} // namespace fsdpc::rounding
