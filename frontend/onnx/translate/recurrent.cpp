#include "frontend/onnx/translate/recurrent.h"

#include "llvm/ADT/StringSwitch.h"
#include <cmath>

namespace fsdpc {

// ---------------------------------------------------------------------------------------------------- activations

namespace {

/// Defaults of alpha and beta, equal to those of the operators of the same names.
std::pair<double, double> defaultParameters(llvm::StringRef name) {
  return llvm::StringSwitch<std::pair<double, double>>(name)
      .Case("leakyrelu", {0.01, 0})
      .Case("hardsigmoid", {0.2, 0.5})
      .Cases("thresholdedrelu", "elu", "affine", {1, 0})
      .Case("scaledtanh", {1, 1})
      .Default({0, 0});
}

bool hasAlpha(llvm::StringRef name) { return defaultParameters(name).first != 0; }
bool hasBeta(llvm::StringRef name) { return name == "hardsigmoid" || name == "affine" || name == "scaledtanh"; }

/// The lists of parameters have entries, in order, only for the functions that have parameters.
std::vector<RecurrentActivation> activationsOf(NodeTranslation &t, llvm::ArrayRef<llvm::StringRef> defaults,
                                               int64_t directions) {
  std::vector<RecurrentActivation> result;
  const onnx::AttributeProto *names = attributeOf(t.node, "activations"),
                             *alphas = attributeOf(t.node, "activation_alpha"),
                             *betas = attributeOf(t.node, "activation_beta");
  int64_t count = static_cast<int64_t>(defaults.size()) * directions;
  if (names && names->strings_size() != count)
    t.reject(llvm::Twine(names->strings_size()) + " activations instead of " + llvm::Twine(count));
  int nextAlpha = 0, nextBeta = 0;
  for (int64_t i = 0; i < count; ++i) {
    RecurrentActivation activation;
    activation.name =
        names ? llvm::StringRef(names->strings(static_cast<int>(i))).lower() : defaults[i % defaults.size()].lower();
    std::tie(activation.alpha, activation.beta) = defaultParameters(activation.name);
    if (hasAlpha(activation.name) && alphas && nextAlpha < alphas->floats_size())
      activation.alpha = alphas->floats(nextAlpha++);
    if (hasBeta(activation.name) && betas && nextBeta < betas->floats_size())
      activation.beta = betas->floats(nextBeta++);
    result.push_back(activation);
  }
  return result;
}

Value *eluOf(NodeTranslation &t, Value *x, double alpha) {
  Value *below = t.binary(Op::sub, t.unary(Op::exp, t.binary(Op::minimum, x, 0.0)), 1);
  return t.select(t.binary(Op::less, x, 0.0), t.binary(Op::mul, below, alpha), x);
}

Value *softplusOf(NodeTranslation &t, Value *x) {
  Value *tail = t.unary(Op::log1p, t.unary(Op::exp, t.unary(Op::neg, t.unary(Op::abs, x))));
  return t.binary(Op::add, t.binary(Op::maximum, x, 0.0), tail);
}

Value *lineOf(NodeTranslation &t, Value *x, double alpha, double beta) {
  return t.binary(Op::add, t.binary(Op::mul, x, alpha), beta);
}

} // namespace

Value *RecurrentActivation::of(NodeTranslation &t, Value *x) const {
  if (name == "sigmoid" || name == "tanh" || name == "relu")
    return t.unary(name == "sigmoid" ? Op::sigmoid : name == "tanh" ? Op::tanh : Op::relu, x);
  if (name == "affine")
    return lineOf(t, x, alpha, beta);
  if (name == "hardsigmoid")
    return t.unary(Op::relu, t.atMost(lineOf(t, x, alpha, beta), t.constantLike(x, 1)));
  if (name == "leakyrelu")
    return t.select(t.binary(Op::less, x, 0.0), t.binary(Op::mul, x, alpha), x);
  if (name == "thresholdedrelu")
    return t.select(t.binary(Op::less, x, alpha), t.constantLike(x, 0), x);
  if (name == "scaledtanh")
    return t.binary(Op::mul, t.unary(Op::tanh, t.binary(Op::mul, x, beta)), alpha);
  if (name == "elu")
    return eluOf(t, x, alpha);
  if (name == "softsign")
    return t.binary(Op::div, x, t.binary(Op::add, t.unary(Op::abs, x), 1));
  if (name == "softplus")
    return softplusOf(t, x);
  t.reject("the activation '" + name + "' is not supported");
}

// ---------------------------------------------------------------------------------------------------- inputs

RecurrentNode::RecurrentNode(NodeTranslation &t, int64_t gates, llvm::ArrayRef<llvm::StringRef> defaultActivations)
    : t(t), gates(gates), hiddenSize(t.input(2)->type().rank() == 3 ? t.input(2)->type().dim(2) : 0) {
  std::string direction = t.text("direction", "forward");
  isReverse = direction == "reverse";
  directions = direction == "bidirectional" ? 2 : 1;
  if (direction != "forward" && !isReverse && directions == 1)
    t.reject("direction='" + direction + "' is not supported");
  isBatchFirst = t.integer("layout", 0) != 0;
  clip = t.real("clip", 0);
  sequence = t.input(0);
  if (sequence->type().rank() != 3)
    t.reject("its input has rank " + llvm::Twine(sequence->type().rank()) + " instead of 3");
  if (isBatchFirst)
    sequence = t.transpose(sequence, {1, 0, 2});
  steps = sequence->type().dim(0);
  batch = sequence->type().dim(1);
  activations = activationsOf(t, defaultActivations, directions);
  checkShapes();
  t.state.charge(steps * directions * 32);
}

void RecurrentNode::checkShapes() {
  int64_t width = gates * hiddenSize, features = sequence->type().dim(2);
  auto expect = [&](unsigned i, std::initializer_list<int64_t> shape) {
    if (t.hasInput(i) && t.input(i)->type().shape() != llvm::ArrayRef<int64_t>(shape))
      t.reject("input " + llvm::Twine(i) + " is " + toString(t.input(i)->type()) + " instead of " +
               toString(t.input(i)->type().withShape(shape)));
  };
  if (hiddenSize < 1 || steps < 1 || t.integer("hidden_size", hiddenSize) != hiddenSize)
    t.reject("hidden_size, or a sequence without steps, does not fit");
  expect(1, {directions, width, features});
  expect(2, {directions, width, hiddenSize});
  expect(3, {directions, 2 * width});
  expect(4, {batch});
  for (unsigned i : {5u, 6u})
    isBatchFirst ? expect(i, {batch, directions, hiddenSize}) : expect(i, {directions, batch, hiddenSize});
  expect(7, {directions, 3 * hiddenSize});
}

/// One direction of a tensor with directions along axis 0.
Value *RecurrentNode::part(Value *all, int64_t direction) {
  Value *own = directions == 1 ? all : t.slice(all, 0, direction, 1);
  return t.reshape(own, own->type().shape().drop_front());
}

RecurrentWeights RecurrentNode::weightsOf(int64_t direction) {
  RecurrentWeights weights{part(t.input(1), direction), part(t.input(2), direction), nullptr, nullptr, nullptr};
  if (t.hasInput(3)) {
    Value *bias = part(t.input(3), direction);
    weights.biasInput = t.slice(bias, 0, 0, gates * hiddenSize);
    weights.biasHidden = t.slice(bias, 0, gates * hiddenSize, gates * hiddenSize);
  }
  if (t.hasInput(7))
    weights.peepholes = part(t.input(7), direction);
  return weights;
}

/// [B, H]; zeros if the input is omitted.
Value *RecurrentNode::initialState(unsigned input, int64_t direction) {
  if (!t.hasInput(input))
    return t.constant(sequence->type().withShape({batch, hiddenSize}), 0);
  return part(isBatchFirst ? t.transpose(t.input(input), {1, 0, 2}) : t.input(input), direction);
}

/// Per step, bool[B, H] that is true for samples that still have input; null if all have.
std::vector<Value *> RecurrentNode::masks() {
  std::vector<Value *> result(steps, nullptr);
  if (!t.hasInput(4))
    return result;
  Value *lengths = t.cast(t.input(4), DType::i64);
  std::optional<HostTensor> known = t.knownTensor(lengths);
  for (int64_t step = 0; step < steps; ++step) {
    bool allGoOn = known && llvm::all_of(known->values, [&](double length) { return length > step; });
    if (allGoOn)
      continue;
    Value *goesOn = t.binary(Op::less, t.constantLike(lengths, static_cast<double>(step)), lengths);
    result[step] = t.broadcast(t.reshape(goesOn, {batch, 1}), {batch, hiddenSize});
  }
  return result;
}

// ---------------------------------------------------------------------------------------------------- steps

Value *RecurrentNode::gate(Value *all, int64_t axis, int64_t g, int64_t count) {
  return t.slice(all, axis, g * hiddenSize, count * hiddenSize);
}

Value *RecurrentNode::clipped(Value *x) {
  return clip > 0 ? t.atMost(t.atLeast(x, t.constantLike(x, -clip)), t.constantLike(x, clip)) : x;
}

Value *RecurrentNode::product(Value *x, Value *w) { return t.make(Op::matmul, {x, w}, MatmulAttributes{false, true}); }

RecurrentNode::Direction RecurrentNode::runDirection(int64_t direction, bool hasCell, const SequenceBias &bias,
                                                     const Step &step) {
  RecurrentWeights weights = weightsOf(direction);
  size_t each = activations.size() / directions;
  llvm::ArrayRef<RecurrentActivation> own = llvm::ArrayRef(activations).slice(direction * each, each);
  Value *fromInput = product(sequence, weights.input);
  if (Value *added = bias(weights))
    fromInput = t.binary(Op::add, fromInput, added);
  RecurrentState state{initialState(5, direction), hasCell ? initialState(6, direction) : nullptr};
  std::vector<Value *> goesOn = masks();
  Direction result;
  result.outputs.resize(steps);
  bool isBackwards = isReverse || direction == 1;
  for (int64_t i = 0; i < steps; ++i) {
    int64_t at = isBackwards ? steps - 1 - i : i;
    Value *now = t.reshape(t.slice(fromInput, 0, at, 1), {batch, gates * hiddenSize});
    RecurrentState next = step(weights, own, now, state);
    result.outputs[at] = next.hidden;
    // Beyond its length a sample's state stays and its output is 0. In the backward direction the sample thus starts at
    // its own end.
    if (Value *mask = goesOn[at]) {
      result.outputs[at] = t.select(mask, next.hidden, t.constantLike(next.hidden, 0));
      next.hidden = t.select(mask, next.hidden, state.hidden);
      next.cell = hasCell ? t.select(mask, next.cell, state.cell) : nullptr;
    }
    state = next;
  }
  result.last = state;
  return result;
}

void RecurrentNode::run(bool hasCell, const SequenceBias &bias, const Step &step) {
  std::vector<Direction> results;
  for (int64_t direction = 0; direction < directions; ++direction)
    results.push_back(runDirection(direction, hasCell, bias, step));
  if (t.wantsOutput(0))
    setSequenceOutput(results);
  llvm::SmallVector<Value *, 2> hidden, cells;
  for (const Direction &result : results) {
    hidden.push_back(result.last.hidden);
    cells.push_back(result.last.cell);
  }
  if (t.wantsOutput(1))
    setLastOutput(1, hidden);
  if (hasCell && t.wantsOutput(2))
    setLastOutput(2, cells);
}

/// Y: [T, D, B, H], or [B, T, D, H].
void RecurrentNode::setSequenceOutput(llvm::ArrayRef<Direction> results) {
  llvm::SmallVector<Value *, 2> parts;
  for (const Direction &result : results) {
    llvm::SmallVector<Value *, 16> slices;
    for (Value *output : result.outputs)
      slices.push_back(t.reshape(output, {1, 1, batch, hiddenSize}));
    parts.push_back(t.concat(slices, 0));
  }
  Value *all = t.concat(parts, 1);
  t.setOutput(0, isBatchFirst ? t.transpose(all, {2, 0, 1, 3}) : all);
}

/// Y_h and Y_c: [D, B, H], or [B, D, H].
void RecurrentNode::setLastOutput(unsigned output, llvm::ArrayRef<Value *> last) {
  llvm::SmallVector<Value *, 2> parts;
  for (Value *state : last)
    parts.push_back(t.reshape(state, {1, batch, hiddenSize}));
  Value *all = t.concat(parts, 0);
  t.setOutput(output, isBatchFirst ? t.transpose(all, {1, 0, 2}) : all);
}

} // namespace fsdpc
