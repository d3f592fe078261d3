// Every stage computes the same: loss, gradients and the updated parameters of a small net, on 1, 2, 3 and 4 ranks.
#include "ir/carried.h"
#include "ir/eval/evaluate.h"
#include "ir/text/text.h"
#include "passes/check/check_schedule.h"
#include "passes/passes.h"
#include "passes/pipeline.h"
#include "passes/runner.h"
#include "tests/compare/compare.h"
#include "tests/unit/plain_target.h"
#include "tests/unit/small_net.h"

#include <gtest/gtest.h>

namespace fsdpc {
namespace {

using Tensors = std::map<std::string, HostTensor>;

/// The global batch of 12 samples, cut over ranks. Label -100 is ignored; ranks ignore different numbers of samples.
std::vector<Tensors> batches(int64_t ranks, int64_t batch) {
  std::mt19937 generator(11);
  std::normal_distribution<double> normal;
  std::vector<Tensors> inputs(ranks);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    HostTensor x(Type(DType::f32, {batch, SmallNet::inputs})), labels(Type(DType::i64, {batch})),
        weight(Type(DType::f32, {batch}), 1);
    for (double &value : x.values)
      value = normal(generator);
    for (int64_t i = 0; i < batch; ++i) {
      int64_t sample = rank * batch + i;
      labels.values[i] = sample == 1 || sample == 2 || sample == 7 ? -100 : static_cast<double>(sample % 3);
    }
    inputs[rank] = {{"x", x}, {"labels", labels}, {"sample_weight", weight}};
  }
  return inputs;
}

struct Outcome {
  double loss = 0;
  std::map<std::string, double> figures; ///< results and scalar states
  Tensors gradients, parameters;
};

class Pipeline : public testing::TestWithParam<std::tuple<int64_t, OptimizerKind>> {
protected:
  PipelineOptions options(int64_t ranks, OptimizerKind optimizer) {
    PipelineOptions options;
    options.worldSize = ranks;
    options.microBatchSize = 12 / ranks;
    options.loss.kind = LossKind::crossEntropy;
    options.optimizer.kind = optimizer;
    options.optimizer.scalars = {{"lr", 0.1},   {"weight_decay", 0.01}, {"beta1", 0.9},    {"beta2", 0.99},
                                 {"eps", 1e-3}, {"rho", 0.9},           {"momentum", 0.9}, {"alpha", 0.9}};
    return options;
  }

  std::unique_ptr<Module> compile(const PipelineOptions &options, Stage stage,
                                  const std::vector<std::string> &skip = {}) {
    auto module = SmallNet::make(options.microBatchSize);
    PlainTarget target;
    std::vector<std::string> remarks;
    PassContext context{options, target, remarks};
    RunnerOptions runner;
    runner.stopAfter = stage;
    runner.skip = skip;
    std::vector<PassTime> times;
    std::string train;
    auto observer = [&](Stage left, const Module &at) {
      if (left == Stage::train)
        train = toText(at);
    };
    llvm::Error error = runPasses(*module, context, runner, times, observer);
    EXPECT_FALSE(static_cast<bool>(error)) << toString(std::move(error));
    if (module->stage == Stage::planned)
      checkPlan(*module, train);
    return module;
  }

  void checkPlan(const Module &planned, const std::string &train) {
    if (llvm::Error error = checkPlanned(planned))
      ADD_FAILURE() << toString(std::move(error)) << toText(planned);
    auto parsed = parse(llvm::MemoryBufferRef(train, "train"));
    ASSERT_TRUE(static_cast<bool>(parsed)) << toString(parsed.takeError());
    if (llvm::Error error = checkAgainstTrain(**parsed, planned))
      ADD_FAILURE() << toString(std::move(error)) << toText(planned);
  }

  Outcome run(const Module &module, const PipelineOptions &options, double firstInput = 0.5) {
    Outcome outcome;
    std::vector<Tensors> inputs = batches(options.worldSize, options.microBatchSize);
    inputs[0].at("x").values[0] = firstInput;
    EvaluationState state = makeEvaluationState(module, randomParameters(module));
    auto results = evaluate(
        module, {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::tapGradients, FunctionKind::update},
        inputs, state, &outcome.gradients);
    if (!results) {
      ADD_FAILURE() << toString(results.takeError()) << toText(module);
      return outcome;
    }
    outcome.loss = results->front().at("loss").values[0];
    for (const char *name : {"grad_norm", "applied"})
      if (results->front().count(name))
        outcome.figures[name] = results->front().at(name).values[0];
    for (const State &scalar : module.states)
      if (scalar.role == StateRole::scalar)
        outcome.figures[scalar.name] = state.states[0].at(scalar.name).values[0];
    outcome.parameters = fullParameters(module, state);
    return outcome;
  }

  static void expectClose(const Tensors &actual, const Tensors &expected, const char *what, double limit = 1e-9) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (const auto &[name, tensor] : expected) {
      ASSERT_TRUE(actual.count(name)) << what << " " << name;
      ASSERT_LE(largestError(actual.at(name).values, tensor.values), limit) << what << " " << name;
    }
  }
};

TEST_P(Pipeline, EveryStageComputesTheSameOnAnyNumberOfRanks) {
  auto [ranks, optimizer] = GetParam();
  PipelineOptions one = options(1, optimizer);
  Outcome expected = run(*compile(one, Stage::train), one);
  EXPECT_EQ(expected.gradients.size(), 4u) << "the frozen bias has no gradient";
  PipelineOptions many = options(ranks, optimizer);
  for (Stage stage : {Stage::train, Stage::sharded, Stage::async, Stage::planned}) {
    SCOPED_TRACE(nameOf(stage).str());
    Outcome actual = run(*compile(many, stage), many);
    EXPECT_NEAR(actual.loss, expected.loss, 1e-12);
    expectClose(actual.gradients, expected.gradients, "gradient");
    expectClose(actual.parameters, expected.parameters, "parameter");
  }
}

/// The norm is that of f32 gradients, whose last bit may depend on the order of a sum.
TEST_P(Pipeline, EveryStageClipsTheSame) {
  auto [ranks, optimizer] = GetParam();
  PipelineOptions one = options(1, optimizer), many = options(ranks, optimizer);
  const double norm = [&] {
    double sum = 0;
    for (const auto &[name, gradient] : run(*compile(one, Stage::train), one).gradients)
      for (double value : gradient.values)
        sum += value * value;
    return std::sqrt(sum);
  }();
  for (PipelineOptions *options : {&one, &many}) {
    options->optimizer.maxNorm = norm / 3;
    options->optimizer.lossScale = LossScaleOptions{.initial = 1024};
  }
  Outcome expected = run(*compile(one, Stage::train), one);
  EXPECT_NEAR(expected.figures.at("grad_norm"), norm, 1e-6 * norm);
  EXPECT_EQ(expected.figures.at("applied"), 1);
  EXPECT_EQ(expected.figures.at("loss_scale_good_steps"), 0) << "the first step does not count";
  for (Stage stage : {Stage::train, Stage::sharded, Stage::async, Stage::planned}) {
    SCOPED_TRACE(nameOf(stage).str());
    Outcome actual = run(*compile(many, stage), many);
    EXPECT_NEAR(actual.figures.at("grad_norm"), norm, 1e-6 * norm);
    expectClose(actual.gradients, expected.gradients, "gradient");
    expectClose(actual.parameters, expected.parameters, "parameter", 1e-7);
  }
}

TEST_P(Pipeline, AStepThatIsNotFiniteChangesNothingInAnyStage) {
  auto [ranks, optimizer] = GetParam();
  PipelineOptions many = options(ranks, optimizer);
  many.optimizer.skipsNonFinite = true;
  many.optimizer.lossScale = LossScaleOptions{.initial = 1024, .hysteresis = 1};
  for (Stage stage : {Stage::train, Stage::planned}) {
    SCOPED_TRACE(nameOf(stage).str());
    auto module = compile(many, stage);
    Outcome actual = run(*module, many, std::nan(""));
    EXPECT_EQ(actual.figures.at("applied"), 0);
    EXPECT_EQ(actual.figures.at("loss_scale"), 512);
    if (actual.figures.count("optimizer_step")) {
      EXPECT_EQ(actual.figures.at("optimizer_step"), 1);
    }
    expectClose(actual.parameters, randomParameters(*module), "parameter", 0);
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndOptimizers, Pipeline,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(OptimizerKind::adamw, OptimizerKind::sgd,
                                                          OptimizerKind::adadelta, OptimizerKind::adagrad,
                                                          OptimizerKind::rmsprop, OptimizerKind::lion)));

TEST_F(Pipeline, IsRightWithoutAnyOptionalPass) {
  PipelineOptions two = options(2, OptimizerKind::adam);
  Outcome expected = run(*compile(two, Stage::train), two);
  for (const Pass *pass : pipeline()) {
    if (!pass->optional)
      continue;
    SCOPED_TRACE(pass->name.str());
    Outcome actual = run(*compile(two, Stage::planned, {pass->name.str()}), two);
    expectClose(actual.parameters, expected.parameters, "parameter");
  }
}

TEST_F(Pipeline, PrintsAndReadsBackEveryStage) {
  PipelineOptions two = options(2, OptimizerKind::adamw);
  for (Stage stage : {Stage::graph, Stage::train, Stage::sharded, Stage::async, Stage::planned}) {
    std::string text = toText(*compile(two, stage));
    auto parsed = parse(llvm::MemoryBufferRef(text, "stage"));
    ASSERT_TRUE(static_cast<bool>(parsed)) << toString(parsed.takeError());
    EXPECT_EQ(toText(**parsed), text);
  }
}

TEST_F(Pipeline, HoldsAtMostTwoGatheredUnits) {
  PipelineOptions two = options(2, OptimizerKind::adamw);
  auto module = compile(two, Stage::planned);
  const std::vector<CarriedOver> left = carriedOverSteps(*module);
  EXPECT_EQ(left.size(), 1u);
  auto isGathered = [&](const Value *value) {
    if (!value->definer() || value->definer()->op() != Op::wait)
      return false;
    const Value *future = value->definer()->operand(0);
    return future->definer() ? future->definer()->op() == Op::allGatherStart
                             : future == left.front().argument->value.get();
  };
  for (const std::unique_ptr<Function> &function : module->functions) {
    int held = left.front().receiver == function.get();
    for (Node *node : *function) {
      held += node->op() == Op::allGatherStart;
      held -= node->op() == Op::free && isGathered(node->operand(0));
      EXPECT_LE(held, 2) << nameOf(function->kind()).str();
    }
  }
}

TEST_F(Pipeline, HoldsOneTappedGradientAtATimeWithABoundOfOne) {
  PipelineOptions one = options(2, OptimizerKind::adamw);
  one.decisions.maxInflightAllGathers = 1;
  auto module = compile(one, Stage::planned);
  int held = 0, gathers = 0;
  for (Node *node : *module->function(FunctionKind::tapGradients)) {
    const Node *wait = node->op() == Op::free ? node->operand(0)->definer() : nullptr;
    held += node->op() == Op::allGatherStart;
    gathers += node->op() == Op::allGatherStart;
    held -= wait && wait->op() == Op::wait && wait->operand(0)->definer()->op() == Op::allGatherStart;
    EXPECT_LE(held, 1);
  }
  EXPECT_GT(gathers, 1);
}

TEST_F(Pipeline, ASecondStepUsesWhatTheFirstOneLeft) {
  auto parametersAfterTwoSteps = [&](int64_t ranks, Stage stage) {
    PipelineOptions sgd = options(ranks, OptimizerKind::sgd);
    auto module = compile(sgd, stage);
    EvaluationState state = makeEvaluationState(*module, randomParameters(*module));
    using Kind = FunctionKind;
    auto results = evaluate(
        *module, {Kind::prologue, Kind::microStep, Kind::update, Kind::prologue, Kind::microStep, Kind::update},
        batches(ranks, sgd.microBatchSize), state);
    EXPECT_TRUE(static_cast<bool>(results)) << toString(results.takeError());
    return fullParameters(*module, state);
  };
  expectClose(parametersAfterTwoSteps(2, Stage::planned), parametersAfterTwoSteps(1, Stage::train), "parameter");
}

} // namespace
} // namespace fsdpc
