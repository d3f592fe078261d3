#include "tests/random/slopes.h"

#include "ir/ops/attributes.h"
#include "tests/compare/compare.h"
#include "tests/random/reference.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

namespace fsdpc {

namespace {

/// Passes fold constants to f32, while the reference has them in f64.
constexpr double limit = 1e-5;
constexpr int maxDraws = 4;
/// From the largest step, over which most losses are smooth, to one where rounding becomes visible.
constexpr double steps[] = {0x1p-15, 0x1p-18, 0x1p-21, 0x1p-24};

/// Moves values off the grid by a quarter to three quarters of its spacing of 1/256. No step of `steps` then crosses a
/// grid point.
void moveOffGrid(HostTensor &tensor, Random &random) {
  for (double &value : tensor.values)
    value += random.real(0.25, 0.75) / 256;
}

struct Point {
  Tensors parameters, samples;
};

Point drawPoint(const Module &graph, const Module &train, const Choices &choices, uint64_t seed, int draw) {
  const PipelineOptions &options = choices.options;
  Random random(seed, "point" + std::to_string(draw));
  uint64_t ofPoint = draw ? random.next() : seed;
  int64_t rows = options.worldSize * options.microSteps * options.microBatchSize;
  Point point{parameterValues(graph, ofPoint), globalBatch(train, choices, ofPoint, rows)};
  for (auto &[name, tensor] : point.parameters)
    moveOffGrid(tensor, random);
  for (auto &[name, tensor] : point.samples)
    if (isFloat(tensor.type.dtype()) && name != "sample_weight" && name != options.loss.labels)
      moveOffGrid(tensor, random);
  return point;
}

llvm::Expected<Outcome> measuredAt(const Module &train, const Point &point) {
  Outcome outcome;
  std::vector<Tensors> rows = rowsOfRanks(point.samples, train.worldSize() * train.microSteps);
  EvaluationState state = makeEvaluationState(train, point.parameters);
  llvm::Expected<RankResults> step =
      evaluate(train, {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::tapGradients}, rows, state,
               &outcome.gradients);
  if (!step)
    return step.takeError();
  outcome.loss = step->front().at("loss").values[0];
  rows.resize(train.worldSize());
  state = makeEvaluationState(train, point.parameters); // the step has changed running statistics
  state.states.resize(train.worldSize());
  llvm::Expected<RankResults> evaluation = evaluate(train, FunctionKind::evalStep, rows, state);
  if (!evaluation)
    return evaluation.takeError();
  outcome.evaluation = std::move(evaluation->front());
  return outcome;
}

/// Instances of random numbers that, according to a remark, depend on the number of ranks.
std::set<int64_t> keyedByRank(const Module &train) {
  std::set<int64_t> instances;
  for (const std::unique_ptr<Function> &function : train.functions)
    for (const Node *node : *function)
      if (node->op() == Op::randomUniform && node->get<RandomUniformAttributes>().batchAxis < 0)
        instances.insert(node->get<RandomUniformAttributes>().instance);
  return instances;
}

// ---- one slope

/// A directional derivative of the compiled module, and its tolerance.
struct Slope {
  const std::string &name;
  std::vector<double> direction;
  double value = 0, allowed = 0;
};

enum class Agreement { yes, no, kink };

class SlopeCheck {
public:
  SlopeCheck(GraphReference &reference, double loss) : reference(reference), loss(loss) {}

  /// The finite difference agrees with the derivative at some step. If it agrees at none, the one-sided differences may
  /// differ: a kink, or a jump of the loss, which the smallest steps amplify.
  llvm::Expected<Agreement> check(const Slope &slope) {
    bool hasKink = false;
    for (double step : steps) {
      llvm::Expected<Sides> sides = sidesAt(slope, step);
      if (!sides)
        return sides.takeError();
      difference = (sides->right + sides->left) / 2;
      // The rounding of two losses, divided by the step.
      double rounding = 64 * std::numeric_limits<double>::epsilon() * std::fabs(loss) / step;
      if (errorOf(difference, slope.value) <= std::max(slope.allowed, rounding))
        return Agreement::yes;
      hasKink = errorOf(sides->right, sides->left) > std::max(slope.allowed, rounding) / 2;
    }
    return hasKink ? Agreement::kink : Agreement::no;
  }
  double difference = 0; ///< of the last step

private:
  struct Sides {
    double left, right;
  };

  llvm::Expected<Sides> sidesAt(const Slope &slope, double step) {
    llvm::Expected<double> above = reference.lossAt(slope.name, slope.direction, step);
    if (!above)
      return above.takeError();
    llvm::Expected<double> below = reference.lossAt(slope.name, slope.direction, -step);
    if (!below)
      return below.takeError();
    return Sides{(loss - *below) / step, (*above - loss) / step};
  }

  GraphReference &reference;
  const double loss;
};

// ---- one graph

/// The train stage at one point.
class PointCheck {
public:
  PointCheck(const Module &graph, const Choices &choices, uint64_t seed, const Outcome &outcome,
             GraphReference &reference, ReferenceCounts &counts)
      : graph(graph), choices(choices), seed(seed), outcome(outcome), reference(reference), counts(counts) {}

  std::optional<Violation> checkValues();
  /// Checks the parameters in `left`. Parameters whose gradients could not be compared here stay in it.
  std::optional<Violation> checkSlopes(std::set<std::string> &left);

private:
  Slope slopeOf(const Parameter &parameter) const;
  std::optional<Violation> checkSlope(SlopeCheck &check, const Slope &slope, std::set<std::string> &left);

  const Module &graph;
  const Choices &choices;
  const uint64_t seed;
  const Outcome &outcome;
  GraphReference &reference;
  ReferenceCounts &counts;
  double referenceLoss = 0;
};

Violation failedEvaluation(llvm::Error error) { return {"evaluation", toString(std::move(error))}; }

std::string isOff(const std::string &what, double actual, double expected) {
  return what + " is " + doubleText(actual) + ", the graph says " + doubleText(expected);
}

std::optional<Violation> PointCheck::checkValues() {
  llvm::Expected<double> loss = reference.loss();
  if (!loss)
    return failedEvaluation(loss.takeError());
  referenceLoss = *loss;
  if (!(errorOf(outcome.loss, *loss) <= limit * std::max(std::fabs(*loss), 1.0)))
    return Violation{"reference_loss", isOff("the loss", outcome.loss, *loss)};
  llvm::Expected<Tensors> outputs = reference.evaluationOutputs();
  if (!outputs)
    return failedEvaluation(outputs.takeError());
  for (const auto &[name, expected] : *outputs) {
    auto found = outcome.evaluation.find("output." + name);
    if (found == outcome.evaluation.end())
      return Violation{"reference_output", "output " + name + " is missing"};
    double error = relativeError(found->second.values, expected.values, 1);
    if (!(error <= limit))
      return Violation{"reference_output", "output " + name + " of evaluation is off by " + doubleText(error)};
  }
  return std::nullopt;
}

Slope PointCheck::slopeOf(const Parameter &parameter) const {
  Slope slope{parameter.name, std::vector<double>(parameter.type.elements())};
  Random random(seed, parameter.name + " direction");
  for (double &element : slope.direction)
    element = random.real(0.5, 1) * random.pick({-1, 1});
  auto gradient = outcome.gradients.find(parameter.name);
  double terms = 0;
  for (size_t i = 0; gradient != outcome.gradients.end() && i < slope.direction.size(); ++i) {
    slope.value += slope.direction[i] * gradient->second.values[i];
    terms += std::fabs(slope.direction[i] * gradient->second.values[i]);
  }
  slope.allowed = limit * terms;
  return slope;
}

std::optional<Violation> PointCheck::checkSlope(SlopeCheck &check, const Slope &slope, std::set<std::string> &left) {
  llvm::Expected<Agreement> agreement = check.check(slope);
  if (!agreement)
    return failedEvaluation(agreement.takeError());
  if (*agreement == Agreement::no)
    return Violation{"reference_gradient", isOff("the slope of " + slope.name, slope.value, check.difference)};
  if (*agreement == Agreement::yes) {
    left.erase(slope.name);
    ++counts.slopes;
  }
  return std::nullopt;
}

std::optional<Violation> PointCheck::checkSlopes(std::set<std::string> &left) {
  std::vector<Slope> slopes;
  double largest = 0;
  for (const Parameter &parameter : graph.parameters) {
    if (!parameter.trainable && outcome.gradients.count(parameter.name))
      return Violation{"reference_frozen", parameter.name + " is frozen and has a gradient"};
    if (left.count(parameter.name)) {
      slopes.push_back(slopeOf(parameter));
      largest = std::max(largest, slopes.back().allowed);
    }
  }
  SlopeCheck check(reference, referenceLoss);
  for (Slope &slope : slopes) {
    slope.allowed = std::max(slope.allowed, 1e-4 * largest);
    if (std::optional<Violation> found = checkSlope(check, slope, left))
      return found;
  }
  return std::nullopt;
}

} // namespace

std::optional<Violation> violationAgainstReference(const Module &graph, const Module &train, const Choices &choices,
                                                   uint64_t seed, ReferenceCounts &counts) {
  std::set<std::string> left;
  for (const Parameter &parameter : graph.parameters)
    if (parameter.trainable)
      left.insert(parameter.name);
  for (int draw = 0; draw < maxDraws && !left.empty(); ++draw) {
    counts.redrawn += draw ? static_cast<int64_t>(left.size()) : 0;
    Point point = drawPoint(graph, train, choices, seed, draw);
    llvm::Expected<Outcome> outcome = measuredAt(train, point);
    if (!outcome)
      return failedEvaluation(outcome.takeError());
    llvm::Expected<std::unique_ptr<GraphReference>> reference =
        GraphReference::make(graph, choices, keyedByRank(train), point.samples, point.parameters);
    if (!reference)
      return failedEvaluation(reference.takeError());
    if (!*reference) {
      ++counts.notRebatched;
      return std::nullopt;
    }
    PointCheck check(graph, choices, seed, *outcome, **reference, counts);
    if (std::optional<Violation> found = check.checkValues())
      return found;
    if (std::optional<Violation> found = check.checkSlopes(left))
      return found;
  }
  counts.atKinks += static_cast<int64_t>(left.size());
  return std::nullopt;
}

} // namespace fsdpc
