// Optimizers: each element separately. Scalars are computed on the host in f64 and used in f32.
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "tests/bf16/bounds.h"

namespace fsdpc::rounding {

namespace {

/// A node's operands after its tensors: scalars, then, if it is guarded, a scale of the gradient and one more.
struct Numbers {
  llvm::ArrayRef<const HostTensor *> operands;
  bool isGuarded;
  size_t first; ///< index after the tensors
  double at(size_t i) const { return operands[first + i]->values[0]; }
  Tracked scale() const { return isGuarded ? Tracked(operands[operands.size() - 2]->values[0]) : Tracked(1); }
};

Numbers numbersOf(const Node &node, llvm::ArrayRef<const HostTensor *> operands, size_t tensors) {
  const auto &attributes = node.get<OptimizerAttributes>();
  return {operands, attributes.guarded, tensors + attributes.averages + attributes.copies};
}

Tracked gradientOf(llvm::ArrayRef<const HostTensor *> operands, const Numbers &numbers, size_t i) {
  return numbers.isGuarded ? Tracked(operands[1]->values[i]) * numbers.scale() : Tracked(operands[1]->values[i]);
}

Errors errorsOfSgd(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const auto &attributes = node.get<OptimizerAttributes>();
  const Numbers numbers = numbersOf(node, operands, 2 + attributes.momentum);
  const double step = attributes.momentum ? numbers.at(4) : 0;
  Errors errors(1 + attributes.momentum);
  for (size_t i = 0; i < operands[0]->values.size(); ++i) {
    const Tracked p = operands[0]->values[i];
    Tracked slope = gradientOf(operands, numbers, i) + asFloat(numbers.at(1)) * p;
    if (attributes.momentum) {
      const Tracked momentum = asFloat(numbers.at(2));
      const Tracked old = operands[2]->values[i];
      const Tracked buffer = step == 1 ? slope : old * momentum + slope * asFloat(1 - numbers.at(3));
      errors[1].push_back(buffer.error);
      slope = attributes.nesterov ? slope + momentum * buffer : buffer;
    }
    errors[0].push_back((p - asFloat(numbers.at(0)) * slope).error);
  }
  return errors;
}

Errors errorsOfAdam(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const auto &attributes = node.get<OptimizerAttributes>();
  const Numbers numbers = numbersOf(node, operands, 4);
  const double lr = numbers.at(0), beta1 = numbers.at(1), beta2 = numbers.at(2), decay = numbers.at(4);
  const Tracked stepSize = asFloat(lr / (1 - std::pow(beta1, numbers.at(5))));
  const Tracked rootOfCorrection = asFloat(std::sqrt(1 - std::pow(beta2, numbers.at(5))));
  Errors errors(3);
  for (size_t i = 0; i < operands[0]->values.size(); ++i) {
    const Tracked p = operands[0]->values[i];
    const Tracked kept = attributes.decoupled ? p * asFloat(1 - lr * decay) : p;
    Tracked slope = gradientOf(operands, numbers, i);
    if (!attributes.decoupled)
      slope = slope + asFloat(decay) * p;
    const Tracked old = operands[2]->values[i];
    const Tracked average = old + asFloat(1 - beta1) * (slope - old);
    const Tracked square = Tracked(operands[3]->values[i]) * asFloat(beta2) + asFloat(1 - beta2) * slope * slope;
    const Tracked root = squareRoot(square) / rootOfCorrection + asFloat(numbers.at(3));
    errors[0].push_back((kept - stepSize * average / root).error);
    errors[1].push_back(average.error);
    errors[2].push_back(square.error);
  }
  return errors;
}

/// The gradient with weight decay, for all optimizers but AdamW.
Tracked decayedSlope(llvm::ArrayRef<const HostTensor *> operands, const Numbers &numbers, double decay, size_t i) {
  return gradientOf(operands, numbers, i) + asFloat(decay) * Tracked(operands[0]->values[i]);
}

/// rate * old + (1 - rate) * value^2
Tracked averageOfSquares(Tracked old, double rate, Tracked value) {
  return old * asFloat(rate) + asFloat(1 - rate) * value * value;
}

Errors errorsOfAdadelta(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const Numbers numbers = numbersOf(node, operands, 4);
  const double rho = numbers.at(1);
  const Tracked epsilon = asFloat(numbers.at(2));
  Errors errors(3);
  for (size_t i = 0; i < operands[0]->values.size(); ++i) {
    const Tracked slope = decayedSlope(operands, numbers, numbers.at(3), i), old = operands[3]->values[i];
    const Tracked square = averageOfSquares(operands[2]->values[i], rho, slope);
    const Tracked change = squareRoot(old + epsilon) / squareRoot(square + epsilon) * slope;
    errors[0].push_back((Tracked(operands[0]->values[i]) - asFloat(numbers.at(0)) * change).error);
    errors[1].push_back(square.error);
    errors[2].push_back(averageOfSquares(old, rho, change).error);
  }
  return errors;
}

Errors errorsOfAdagrad(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const Numbers numbers = numbersOf(node, operands, 3);
  const Tracked lr = asFloat(numbers.at(0) / (1 + (numbers.at(4) - 1) * numbers.at(1)));
  Errors errors(2);
  for (size_t i = 0; i < operands[0]->values.size(); ++i) {
    const Tracked slope = decayedSlope(operands, numbers, numbers.at(3), i);
    const Tracked sum = Tracked(operands[2]->values[i]) + slope * slope;
    const Tracked root = squareRoot(sum) + asFloat(numbers.at(2));
    errors[0].push_back((Tracked(operands[0]->values[i]) - lr * slope / root).error);
    errors[1].push_back(sum.error);
  }
  return errors;
}

Errors errorsOfRmsprop(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const auto &attributes = node.get<OptimizerAttributes>();
  const size_t momentum = 3, average = momentum + attributes.momentum;
  const Numbers numbers = numbersOf(node, operands, average + attributes.centered);
  const double alpha = numbers.at(1);
  Errors errors(2 + attributes.momentum + attributes.centered);
  for (size_t i = 0; i < operands[0]->values.size(); ++i) {
    const Tracked slope = decayedSlope(operands, numbers, numbers.at(3), i);
    const Tracked square = averageOfSquares(operands[2]->values[i], alpha, slope);
    errors[1].push_back(square.error);
    Tracked variance = square;
    if (attributes.centered) {
      const Tracked old = operands[average]->values[i], mean = old + asFloat(1 - alpha) * (slope - old);
      errors[average - 1].push_back(mean.error);
      variance = square - mean * mean;
    }
    Tracked direction = slope / (squareRoot(variance) + asFloat(numbers.at(2)));
    if (attributes.momentum) {
      direction = direction + asFloat(numbers.at(4)) * Tracked(operands[momentum]->values[i]);
      errors[momentum - 1].push_back(direction.error);
    }
    errors[0].push_back((Tracked(operands[0]->values[i]) - asFloat(numbers.at(0)) * direction).error);
  }
  return errors;
}

/// If the direction is closer to 0 than its error, either sign is allowed.
Errors errorsOfLion(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const Numbers numbers = numbersOf(node, operands, 3);
  const Tracked lr = asFloat(numbers.at(0)), keep = asFloat(1 - numbers.at(0) * numbers.at(3));
  Errors errors(2);
  for (size_t i = 0; i < operands[0]->values.size(); ++i) {
    const Tracked slope = gradientOf(operands, numbers, i), old = operands[2]->values[i];
    const Tracked direction = old * asFloat(numbers.at(1)) + asFloat(1 - numbers.at(1)) * slope;
    const bool isSure = std::fabs(direction.value) > direction.error;
    const Tracked step = lr * Tracked(direction.value < 0 ? -1 : 1);
    errors[0].push_back((Tracked(operands[0]->values[i]) * keep - step).error + (isSure ? 0 : 2 * numbers.at(0)));
    errors[1].push_back((old * asFloat(numbers.at(2)) + asFloat(1 - numbers.at(2)) * slope).error);
  }
  return errors;
}

Errors errorsOfTensors(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  switch (node.op()) {
  case Op::adam: return errorsOfAdam(node, operands);
  case Op::adadelta: return errorsOfAdadelta(node, operands);
  case Op::adagrad: return errorsOfAdagrad(node, operands);
  case Op::rmsprop: return errorsOfRmsprop(node, operands);
  case Op::lion: return errorsOfLion(node, operands);
  default: return errorsOfSgd(node, operands);
  }
}

/// Of the moving average, the last state, given those of the new parameter.
std::vector<double> errorsOfAverage(const Node &node, llvm::ArrayRef<const HostTensor *> operands,
                                    const HostTensor &parameter, llvm::ArrayRef<double> parameterErrors) {
  const auto &attributes = node.get<OptimizerAttributes>();
  const HostTensor &old = *operands[node.resultCount() - attributes.copies];
  const size_t decay = operands.size() - 2 - 2 * attributes.guarded;
  const bool isFirst = operands[decay + 1]->values[0] == 1;
  std::vector<double> errors;
  for (size_t i = 0; i < old.values.size(); ++i) {
    const Tracked before = old.values[i], next = {parameter.values[i], parameterErrors[i]};
    const Tracked average = before + asFloat(1 - operands[decay]->values[0]) * (next - before);
    errors.push_back(isFirst ? next.error : average.error);
  }
  return errors;
}

} // namespace

Errors errorsOfOptimizer(const Node &node, llvm::ArrayRef<const HostTensor *> operands,
                         llvm::ArrayRef<HostTensor> values) {
  const auto &attributes = node.get<OptimizerAttributes>();
  Errors errors = errorsOfTensors(node, operands);
  if (attributes.averages)
    errors.push_back(errorsOfAverage(node, operands, values[0], errors[0]));
  if (attributes.copies)
    errors.push_back(errors[0]);
  return errors;
}

} // namespace fsdpc::rounding
