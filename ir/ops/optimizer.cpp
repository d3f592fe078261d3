// Optimizers: the updates of torch.optim (single tensor, maximize=False) and of Lion (Chen et al., Symbolic Discovery
// of Optimization Algorithms, arXiv 2302.06675). They are elementwise, so they work on full parameters and on shards
// alike. Attributes decide which state exists. Every number is an operand.
//
// Results overwrite operands: result 0 operand 0 (p), result i >= 1 operand i + 1. Operand 1 is the gradient.
//
// A gradient may have been summed in 16 bits and is then read in that type.
//
// With `averages`, one more state follows the others, and two more numbers follow the step: decay f64[] and count
// i64[], which is 1 in the first step. The state becomes decay * average + (1 - decay) * p', in the first step p' (the
// averages of torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn).
//
// With `copies`, one more tensor follows the states, with p's shape and a 16-bit float type. Its old value is not read,
// and its result is p'. So the next gather sends the values that the update has just written.
//
// With `guarded`, the last two operands are scale f32[] and applies bool[]. g * scale replaces g. If `applies` is
// false, every result equals its operand, so the step has no effect.
#include "ir/ops/helpers.h"
#include <cmath>

namespace fsdpc {

namespace {

/// The OptimizerAttributes that an op supports.
struct SupportedAttributes {
  bool momentum = false, nesterov = false, decoupled = false, centered = false;
};

/// The operand list of an op: p, g, `states` tensors, the average and the copy if present, `scalars` f64[] and, if
/// hasStep, the step i64[]. Then decay and count of the average, and scale and applies, if guarded.
struct Layout {
  size_t states, scalars;
  bool hasStep;
  bool averages = false, copies = false, guarded = false;

  Layout(size_t states, size_t scalars, bool hasStep, const OptimizerAttributes &attributes)
      : states(states), scalars(scalars), hasStep(hasStep), averages(attributes.averages), copies(attributes.copies),
        guarded(attributes.guarded) {}
  size_t tensors() const { return 2 + states + averages + copies; }
  size_t step() const { return tensors() + scalars; }
  size_t decay() const { return step() + hasStep; }
  size_t scale() const { return decay() + 2 * averages; }
  size_t operands() const { return scale() + 2 * guarded; }
  Type scalarAt(size_t operand) const {
    if (operand < scale()) {
      const bool isCount = (hasStep && operand == step()) || (averages && operand == decay() + 1);
      return Type(isCount ? DType::i64 : DType::f64, {});
    }
    return Type(operand == scale() ? DType::f32 : DType::boolean, {});
  }
};

Layout sgdLayout(const OptimizerAttributes &attributes) {
  return attributes.momentum ? Layout(1, 4, true, attributes) : Layout(0, 2, false, attributes);
}
Layout adamLayout(const OptimizerAttributes &attributes) { return {2, 5, true, attributes}; }
Layout adadeltaLayout(const OptimizerAttributes &attributes) { return {2, 4, false, attributes}; }
Layout adagradLayout(const OptimizerAttributes &attributes) { return {1, 4, true, attributes}; }
Layout rmspropLayout(const OptimizerAttributes &attributes) {
  return {size_t{1} + attributes.momentum + attributes.centered, size_t{4} + attributes.momentum, false, attributes};
}

Layout lionLayout(const OptimizerAttributes &attributes) { return {1, 4, false, attributes}; }

llvm::Error checkAttributes(const OpInfo &info, const OptimizerAttributes &attributes, SupportedAttributes understood) {
  if ((attributes.momentum && !understood.momentum) || (attributes.nesterov && !understood.nesterov) ||
      (attributes.decoupled && !understood.decoupled) || (attributes.centered && !understood.centered))
    return constraintError(info.name, "C4", "an attribute of another optimizer is set");
  if (attributes.nesterov && !attributes.momentum)
    return constraintError(info.name, "C5", "nesterov needs momentum");
  return llvm::Error::success();
}

llvm::Error inferOptimizer(const OpInfo &info, llvm::ArrayRef<Type> operands, Layout layout,
                           llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  if (operands.size() != layout.operands())
    return constraintError(info.name, "C1",
                           "these attributes need " + llvm::Twine(layout.operands()) + " operands, not " +
                               llvm::Twine(operands.size()));
  if (llvm::Error error = checkFloat(info, "C2", operands, 0))
    return error;
  const Type &gradient = operands[1];
  if (!isHalf(gradient.dtype()) || operands[0].dtype() != DType::f32 || gradient.shape() != operands[0].shape())
    if (llvm::Error error = checkSame(info, "C2", operands, 0, 1))
      return error;
  for (unsigned i = 2; i < layout.tensors() - layout.copies; ++i)
    if (llvm::Error error = checkSame(info, "C2", operands, 0, i))
      return error;
  const Type &copy = operands[layout.tensors() - 1];
  if (layout.copies && (copy.shape() != operands[0].shape() || !isHalf(copy.dtype())))
    return constraintError(info.name, "C6", "the copy is " + toString(copy) + ", p is " + toString(operands[0]));
  for (size_t i = layout.tensors(); i < layout.operands(); ++i) {
    Type scalar = layout.scalarAt(i);
    if (operands[i] != scalar)
      return constraintError(info.name, "C3",
                             "operand " + llvm::Twine(i) + " is " + toString(scalar) + " but is " +
                                 toString(operands[i]));
  }
  for (size_t i = 0; i < layout.tensors(); ++i)
    if (i != 1)
      results.push_back(operands[i]);
  return llvm::Error::success();
}

template <const OpInfo &info, Layout (*layoutOf)(const OptimizerAttributes &), SupportedAttributes understood>
llvm::Error infer(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                  llvm::SmallVectorImpl<Type> &results) {
  const auto &a = attributesOf<OptimizerAttributes>(attributes);
  if (llvm::Error error = checkAttributes(info, a, understood))
    return error;
  return inferOptimizer(info, operands, layoutOf(a), results);
}

/// The operands of one optimizer node, read by element and by scalar.
class Step {
public:
  Step(EvaluateContext &context, Layout layout)
      : context(context), layout(layout), scale(layout.guarded ? operand(layout.scale()) : 1),
        applies(!layout.guarded || operand(layout.scale() + 1) != 0) {}
  size_t elements() const { return context.operands[0]->values.size(); }
  double parameter(size_t i) const { return context.operands[0]->values[i]; }
  double gradient(size_t i) const { return context.operands[1]->values[i] * scale; }
  double state(size_t which, size_t i) const { return context.operands[2 + which]->values[i]; }
  double scalar(size_t which) const { return operand(layout.tensors() + which); }
  /// 1 in the first step.
  double number() const { return operand(layout.step()); }
  void setParameter(size_t i, double value) {
    context.results[0].values[i] = applies ? value : parameter(i);
    if (layout.averages)
      setState(layout.states, i, averageWith(value, state(layout.states, i)));
    if (layout.copies)
      context.results.back().values[i] = context.results[0].values[i];
  }
  void setState(size_t which, size_t i, double value) {
    context.results[1 + which].values[i] = applies ? value : state(which, i);
  }

private:
  double operand(size_t i) const { return context.operands[i]->values[0]; }
  double averageWith(double value, double average) const {
    const double decay = operand(layout.decay() + 1) == 1 ? 0 : operand(layout.decay());
    return decay * average + (1 - decay) * value;
  }

  EvaluateContext &context;
  const Layout layout;
  const double scale;
  const bool applies;
};

void evaluateSgd(EvaluateContext &context) {
  const auto &attributes = context.get<OptimizerAttributes>();
  Step step(context, sgdLayout(attributes));
  const double lr = step.scalar(0), weightDecay = step.scalar(1);
  for (size_t i = 0; i < step.elements(); ++i) {
    double g = step.gradient(i) + weightDecay * step.parameter(i);
    if (attributes.momentum) {
      const double momentum = step.scalar(2), dampening = step.scalar(3);
      // The first gradient initializes the buffer undamped.
      double buffer = step.number() == 1 ? g : momentum * step.state(0, i) + (1 - dampening) * g;
      step.setState(0, i, buffer);
      g = attributes.nesterov ? g + momentum * buffer : buffer;
    }
    step.setParameter(i, step.parameter(i) - lr * g);
  }
}

void evaluateAdam(EvaluateContext &context) {
  const auto &attributes = context.get<OptimizerAttributes>();
  Step step(context, adamLayout(attributes));
  const double lr = step.scalar(0), beta1 = step.scalar(1), beta2 = step.scalar(2), epsilon = step.scalar(3),
               weightDecay = step.scalar(4);
  const double correction1 = 1 - std::pow(beta1, step.number()), correction2 = 1 - std::pow(beta2, step.number());
  for (size_t i = 0; i < step.elements(); ++i) {
    double p = step.parameter(i), g = step.gradient(i);
    if (attributes.decoupled)
      p *= 1 - lr * weightDecay;
    else
      g += weightDecay * p;
    double m = beta1 * step.state(0, i) + (1 - beta1) * g;
    double v = beta2 * step.state(1, i) + (1 - beta2) * g * g;
    step.setParameter(i, p - lr / correction1 * m / (std::sqrt(v) / std::sqrt(correction2) + epsilon));
    step.setState(0, i, m);
    step.setState(1, i, v);
  }
}

void evaluateAdadelta(EvaluateContext &context) {
  Step step(context, adadeltaLayout(context.get<OptimizerAttributes>()));
  const double lr = step.scalar(0), rho = step.scalar(1), epsilon = step.scalar(2), weightDecay = step.scalar(3);
  for (size_t i = 0; i < step.elements(); ++i) {
    double g = step.gradient(i) + weightDecay * step.parameter(i);
    double squareAverage = rho * step.state(0, i) + (1 - rho) * g * g;
    double delta = std::sqrt(step.state(1, i) + epsilon) / std::sqrt(squareAverage + epsilon) * g;
    step.setParameter(i, step.parameter(i) - lr * delta);
    step.setState(0, i, squareAverage);
    step.setState(1, i, rho * step.state(1, i) + (1 - rho) * delta * delta);
  }
}

void evaluateAdagrad(EvaluateContext &context) {
  Step step(context, adagradLayout(context.get<OptimizerAttributes>()));
  const double decay = step.scalar(1), epsilon = step.scalar(2), weightDecay = step.scalar(3);
  const double lr = step.scalar(0) / (1 + (step.number() - 1) * decay);
  for (size_t i = 0; i < step.elements(); ++i) {
    double g = step.gradient(i) + weightDecay * step.parameter(i);
    double sum = step.state(0, i) + g * g;
    step.setParameter(i, step.parameter(i) - lr * g / (std::sqrt(sum) + epsilon));
    step.setState(0, i, sum);
  }
}

void evaluateRmsprop(EvaluateContext &context) {
  const auto &attributes = context.get<OptimizerAttributes>();
  Step step(context, rmspropLayout(attributes));
  const size_t buffer = 1, average = 1 + attributes.momentum;
  const double lr = step.scalar(0), alpha = step.scalar(1), epsilon = step.scalar(2), weightDecay = step.scalar(3);
  for (size_t i = 0; i < step.elements(); ++i) {
    double g = step.gradient(i) + weightDecay * step.parameter(i);
    double squareAverage = alpha * step.state(0, i) + (1 - alpha) * g * g;
    step.setState(0, i, squareAverage);
    double variance = squareAverage;
    if (attributes.centered) {
      double mean = alpha * step.state(average, i) + (1 - alpha) * g;
      step.setState(average, i, mean);
      variance -= mean * mean;
    }
    double direction = g / (std::sqrt(variance) + epsilon);
    if (attributes.momentum) {
      direction += step.scalar(4) * step.state(buffer, i);
      step.setState(buffer, i, direction);
    }
    step.setParameter(i, step.parameter(i) - lr * direction);
  }
}

void evaluateLion(EvaluateContext &context) {
  Step step(context, lionLayout(context.get<OptimizerAttributes>()));
  const double lr = step.scalar(0), beta1 = step.scalar(1), beta2 = step.scalar(2), weightDecay = step.scalar(3);
  for (size_t i = 0; i < step.elements(); ++i) {
    const double g = step.gradient(i), average = step.state(0, i);
    const double direction = beta1 * average + (1 - beta1) * g;
    const double sign = direction > 0 ? 1 : direction < 0 ? -1 : direction;
    step.setParameter(i, step.parameter(i) * (1 - lr * weightDecay) - lr * sign);
    step.setState(0, i, beta2 * average + (1 - beta2) * g);
  }
}

/// About ten operations per element of each result tensor.
Cost costOfOptimizer(const Node &node) { return costWithFlops(node, 10 * costOfTypes(node).flops); }

// "..." because the number of operands depends on the attributes.
constexpr llvm::StringRef sgdNames[] = {"p", "g", "states_and_numbers..."};
constexpr llvm::StringRef adamNames[] = {"p", "g", "exp_avg", "exp_avg_sq", "copy_and_numbers..."};
constexpr llvm::StringRef adadeltaNames[] = {"p", "g", "square_avg", "acc_delta", "copy_and_numbers..."};
constexpr llvm::StringRef adagradNames[] = {"p", "g", "sum", "copy_and_numbers..."};
constexpr llvm::StringRef lionNames[] = {"p", "g", "exp_avg", "copy_and_numbers..."};
constexpr llvm::StringRef rmspropNames[] = {"p", "g", "square_avg", "states_and_numbers..."};

} // namespace

const OpInfo sgdInfo = {
    .name = "sgd",
    .doc = "g' = g + weight_decay * p; with momentum buf' = g' in step 1, later momentum * buf + (1 - dampening) * g', "
           "and g' = buf' or "
           "(nesterov) g' + momentum * buf'; p' = p - lr * g'. Operands p, g, [buf], lr, weight_decay [, momentum, "
           "dampening, step], "
           "those in brackets with momentum; results p' [, buf']. (C1) as many operands as the attributes say. (C2) p, "
           "g and buf have "
           "one float type; g may have 16 bits where p is f32. (C3) numbers are f64[], step is i64[], with guarded "
           "scale is f32[] and applies bool[]. "
           "(C4) only momentum and nesterov may be set of the "
           "others, (C5) nesterov with "
           "momentum. (C6) The copy has p's shape and a 16-bit float type.",
    .operandNames = sgdNames,
    .traits = inPlace,
    .makeAttributes = makeAttributes<OptimizerAttributes>,
    .infer = infer<sgdInfo, sgdLayout, SupportedAttributes{.momentum = true, .nesterov = true}>,
    .evaluate = evaluateSgd,
    .vjp = notDifferentiable,
    .cost = costOfOptimizer,
    .computeClass = ComputeClass::optimizer,
    .stages = fromTrain,
};

const OpInfo adamInfo = {
    .name = "adam",
    .doc = "p' = p - lr / (1 - beta1^step) * m' / (sqrt(v') / sqrt(1 - beta2^step) + eps) with m' = beta1 * m + (1 - "
           "beta1) * g, v' = "
           "beta2 * v + (1 - beta2) * g * g; weight decay adds weight_decay * p to g or, decoupled, first scales p by "
           "1 - lr * "
           "weight_decay. Results p', m', v'. (C1) as many operands as named. (C2) p, g and the states have one float "
           "type; g may have 16 bits where p is f32. (C3) "
           "numbers are f64[], step is i64[], with guarded scale is f32[] and applies bool[]. (C4) only decoupled may "
           "be set. (C6) The copy has p's shape and a 16-bit "
           "float type.",
    .operandNames = adamNames,
    .traits = inPlace,
    .makeAttributes = makeAttributes<OptimizerAttributes>,
    .infer = infer<adamInfo, adamLayout, SupportedAttributes{.decoupled = true}>,
    .evaluate = evaluateAdam,
    .vjp = notDifferentiable,
    .cost = costOfOptimizer,
    .computeClass = ComputeClass::optimizer,
    .stages = fromTrain,
};

const OpInfo adadeltaInfo = {
    .name = "adadelta",
    .doc = "p' = p - lr * d with g' = g + weight_decay * p, s' = rho * s + (1 - rho) * g' * g', d = sqrt(a + eps) / "
           "sqrt(s' + eps) * g', "
           "a' = rho * a + (1 - rho) * d * d. Results p', square_avg' (s'), acc_delta' (a'). (C1) as many operands as "
           "named. (C2) p, g "
           "and the states have one float type; g may have 16 bits where p is f32. (C3) numbers are f64[], with "
           "guarded scale is f32[] and applies "
           "bool[]. (C4) no attribute of another optimizer is set. (C6) The copy has "
           "p's shape and a 16-bit float type.",
    .operandNames = adadeltaNames,
    .traits = inPlace,
    .makeAttributes = makeAttributes<OptimizerAttributes>,
    .infer = infer<adadeltaInfo, adadeltaLayout, SupportedAttributes{}>,
    .evaluate = evaluateAdadelta,
    .vjp = notDifferentiable,
    .cost = costOfOptimizer,
    .computeClass = ComputeClass::optimizer,
    .stages = fromTrain,
};

const OpInfo adagradInfo = {
    .name = "adagrad",
    .doc = "p' = p - lr / (1 + (step - 1) * lr_decay) * g' / (sqrt(sum') + eps) with g' = g + weight_decay * p, sum' = "
           "sum + g' * g'. "
           "Results p', sum'. (C1) as many operands as named. (C2) p, g and the state have one float type; g may have "
           "16 bits where p is f32. (C3) "
           "numbers are f64[], step is i64[], with guarded scale is f32[] and applies bool[]. (C4) no attribute of "
           "another optimizer is set. (C6) The copy has p's shape and a 16-bit float type.",
    .operandNames = adagradNames,
    .traits = inPlace,
    .makeAttributes = makeAttributes<OptimizerAttributes>,
    .infer = infer<adagradInfo, adagradLayout, SupportedAttributes{}>,
    .evaluate = evaluateAdagrad,
    .vjp = notDifferentiable,
    .cost = costOfOptimizer,
    .computeClass = ComputeClass::optimizer,
    .stages = fromTrain,
};

const OpInfo rmspropInfo = {
    .name = "rmsprop",
    .doc = "d = g' / (sqrt(s' - c) + eps) with g' = g + weight_decay * p, s' = alpha * s + (1 - alpha) * g' * g', c = "
           "0 or (centered) the "
           "square of a' = alpha * a + (1 - alpha) * g'; with momentum d = buf' = momentum * buf + d; p' = p - lr * d. "
           "Operands p, g, "
           "square_avg (s), [buf], [grad_avg (a)], lr, alpha, eps, weight_decay [, momentum]; results p', s' [, buf'] "
           "[, a']. (C1) as "
           "many operands as the attributes say. (C2) p, g and the states have one float type; g may have 16 bits "
           "where p is f32. (C3) numbers are f64[]. "
           "(C4) only "
           "momentum and centered may be set. (C6) The copy has p's shape and a 16-bit float type.",
    .operandNames = rmspropNames,
    .traits = inPlace,
    .makeAttributes = makeAttributes<OptimizerAttributes>,
    .infer = infer<rmspropInfo, rmspropLayout, SupportedAttributes{.momentum = true, .centered = true}>,
    .evaluate = evaluateRmsprop,
    .vjp = notDifferentiable,
    .cost = costOfOptimizer,
    .computeClass = ComputeClass::optimizer,
    .stages = fromTrain,
};

const OpInfo lionInfo = {
    .name = "lion",
    .doc =
        "p' = (1 - lr * weight_decay) * p - lr * sign(beta1 * m + (1 - beta1) * g), m' = beta2 * m + (1 - beta2) * g; "
        "the sign of 0 is 0. Results p', exp_avg' (m'). (C1) as many operands as named. (C2) p, g and the state have "
        "one float type; g may have 16 bits where p is f32. (C3) numbers are f64[], with guarded scale is f32[] and "
        "applies bool[]. (C4) no attribute of another optimizer is set. (C6) The copy has p's shape and a 16-bit "
        "float type.",
    .operandNames = lionNames,
    .traits = inPlace,
    .makeAttributes = makeAttributes<OptimizerAttributes>,
    .infer = infer<lionInfo, lionLayout, SupportedAttributes{}>,
    .evaluate = evaluateLion,
    .vjp = notDifferentiable,
    .cost = costOfOptimizer,
    .computeClass = ComputeClass::optimizer,
    .stages = fromTrain,
};

} // namespace fsdpc
