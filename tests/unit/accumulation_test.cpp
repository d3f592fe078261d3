// Several micro-steps: the train stage on K x N ranks computes the same as K calls of the later stages on N ranks. A
// step does not depend on how its samples are split over ranks and micro-steps.
#include "ir/eval/evaluate.h"
#include "ir/text/text.h"
#include "passes/check/check_schedule.h"
#include "passes/pipeline.h"
#include "passes/runner.h"
#include "tests/compare/compare.h"
#include "tests/unit/plain_target.h"
#include "tests/unit/small_net.h"

#include <gtest/gtest.h>

namespace fsdpc {
namespace {

using Tensors = std::map<std::string, HostTensor>;

constexpr int64_t samples = 24;

/// The global batch in pieces of `batch`. Label -100 is ignored; pieces ignore different numbers of samples.
std::vector<Tensors> pieces(int64_t batch) {
  std::mt19937 generator(11);
  std::normal_distribution<double> normal;
  std::vector<Tensors> inputs(samples / batch);
  for (size_t piece = 0; piece < inputs.size(); ++piece) {
    HostTensor x(Type(DType::f32, {batch, SmallNet::inputs})), labels(Type(DType::i64, {batch})),
        weight(Type(DType::f32, {batch}), 1);
    for (double &value : x.values)
      value = normal(generator);
    for (int64_t i = 0; i < batch; ++i) {
      int64_t sample = static_cast<int64_t>(piece) * batch + i;
      labels.values[i] = sample % 5 == 1 || sample == 2 ? -100 : static_cast<double>(sample % 3);
    }
    inputs[piece] = {{"x", x}, {"labels", labels}, {"sample_weight", weight}};
  }
  return inputs;
}

struct Outcome {
  double loss = 0;
  Tensors gradients, parameters;
};

struct Cut {
  int64_t ranks, microSteps;
  Strategy strategy;
  Accumulation accumulation;
  friend void PrintTo(const Cut &cut, std::ostream *out) {
    *out << cut.ranks << " ranks, " << cut.microSteps << " micro-steps, " << spelled(cut.strategy) << ", "
         << spelled(cut.accumulation);
  }
};

PipelineOptions optionsOf(const Cut &cut, OptimizerKind optimizer = OptimizerKind::adamw) {
  PipelineOptions options;
  options.worldSize = cut.ranks;
  options.microSteps = cut.microSteps;
  options.microBatchSize = samples / (cut.ranks * cut.microSteps);
  options.choices.strategy = cut.strategy;
  options.choices.accumulation = cut.accumulation;
  options.shardDegree = cut.strategy == Strategy::hybridShard ? 2 : -1;
  options.loss.kind = LossKind::crossEntropy;
  options.optimizer.kind = optimizer;
  options.optimizer.scalars = {{"lr", 0.1}, {"weight_decay", 0.01}, {"beta1", 0.9}, {"beta2", 0.99}, {"eps", 1e-3}};
  return options;
}

std::unique_ptr<Module> compile(const PipelineOptions &options, Stage stage,
                                const std::vector<std::string> &skip = {}) {
  auto module = SmallNet::make(options.microBatchSize);
  for (Unit &unit : module->units)
    unit.choices = options.choices;
  PlainTarget target;
  std::vector<std::string> remarks;
  PassContext context{options, target, remarks};
  RunnerOptions runner;
  runner.stopAfter = stage;
  runner.skip = skip;
  std::vector<PassTime> times;
  std::unique_ptr<Module> train;
  auto observer = [&](Stage left, const Module &at) {
    if (left != Stage::train)
      return;
    auto parsed = parse(llvm::MemoryBufferRef(toText(at), "train"));
    ASSERT_TRUE(static_cast<bool>(parsed)) << toString(parsed.takeError());
    train = std::move(*parsed);
  };
  llvm::Error error = runPasses(*module, context, runner, times, observer);
  EXPECT_FALSE(static_cast<bool>(error)) << toString(std::move(error));
  if (module->stage != Stage::planned)
    return module;
  if (llvm::Error error = checkPlanned(*module))
    ADD_FAILURE() << toString(std::move(error)) << toText(*module);
  if (llvm::Error error = checkAgainstTrain(*train, *module))
    ADD_FAILURE() << toString(std::move(error)) << toText(*module);
  return module;
}

/// Runs two steps and taps the gradients of the first.
Outcome run(const Module &module, int64_t batch) {
  using Kind = FunctionKind;
  Outcome outcome;
  EvaluationState state = makeEvaluationState(module, randomParameters(module));
  for (Tensors *taps : {&outcome.gradients, static_cast<Tensors *>(nullptr)}) {
    const std::vector<Tensors> inputs = pieces(batch);
    llvm::SmallVector<Kind, 4> kinds = {Kind::prologue, Kind::microStep, Kind::update};
    if (taps)
      kinds.insert(kinds.end() - 1, Kind::tapGradients);
    auto results = module.stage == Stage::train ? evaluate(module, kinds, inputs, state, taps)
                                                : evaluateStep(module, inputs, state, taps);
    if (!results) {
      ADD_FAILURE() << toString(results.takeError()) << toText(module);
      return outcome;
    }
    outcome.loss = results->front().at("loss").values[0];
  }
  outcome.parameters = fullParameters(module, state);
  return outcome;
}

void expectClose(const Tensors &actual, const Tensors &expected, const char *what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto &[name, tensor] : expected) {
    ASSERT_TRUE(actual.count(name)) << what << " " << name;
    ASSERT_LE(largestError(actual.at(name).values, tensor.values), 1e-9) << what << " " << name;
  }
}

void expectClose(const Outcome &actual, const Outcome &expected) {
  EXPECT_NEAR(actual.loss, expected.loss, 1e-12);
  expectClose(actual.gradients, expected.gradients, "gradient");
  expectClose(actual.parameters, expected.parameters, "parameter");
}

class AccumulatedSteps : public testing::TestWithParam<Cut> {};

TEST_P(AccumulatedSteps, EveryStageComputesTheStepOfOneRankAndOneMicroStep) {
  const PipelineOptions whole = optionsOf({1, 1, Strategy::fullShard, Accumulation::reduce}),
                        options = optionsOf(GetParam());
  const Outcome expected = run(*compile(whole, Stage::train), samples);
  EXPECT_EQ(expected.gradients.size(), 4u);
  for (Stage stage : {Stage::train, Stage::sharded, Stage::async, Stage::planned}) {
    SCOPED_TRACE(nameOf(stage).str());
    expectClose(run(*compile(options, stage), options.microBatchSize), expected);
  }
}

TEST_P(AccumulatedSteps, PrintsAndReadsBack) {
  for (Stage stage : {Stage::train, Stage::sharded, Stage::planned}) {
    std::string text = toText(*compile(optionsOf(GetParam()), stage));
    auto parsed = parse(llvm::MemoryBufferRef(text, "stage"));
    ASSERT_TRUE(static_cast<bool>(parsed)) << toString(parsed.takeError());
    EXPECT_EQ(toText(**parsed), text);
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndPlacements, AccumulatedSteps,
                         testing::Values(Cut{1, 3, Strategy::fullShard, Accumulation::reduce},
                                         Cut{2, 2, Strategy::fullShard, Accumulation::reduce},
                                         Cut{3, 2, Strategy::fullShard, Accumulation::keepGradients},
                                         Cut{2, 3, Strategy::fullShard, Accumulation::keepParameters},
                                         Cut{2, 2, Strategy::fullShard, Accumulation::keepBoth},
                                         Cut{2, 2, Strategy::shardGradOp, Accumulation::keepGradients},
                                         Cut{2, 4, Strategy::shardOptimizer, Accumulation::reduce},
                                         Cut{2, 2, Strategy::shardOptimizer, Accumulation::keepGradients},
                                         Cut{2, 2, Strategy::noShard, Accumulation::reduce},
                                         Cut{4, 2, Strategy::hybridShard, Accumulation::reduce},
                                         Cut{4, 3, Strategy::hybridShard, Accumulation::keepGradients},
                                         Cut{4, 2, Strategy::hybridShard, Accumulation::keepBoth}));

TEST(AccumulationPasses, AreRightWithoutAnyOptionalOne) {
  const PipelineOptions options = optionsOf({2, 2, Strategy::fullShard, Accumulation::keepGradients});
  const Outcome expected = run(*compile(options, Stage::train), options.microBatchSize);
  for (const Pass *pass : pipeline()) {
    if (!pass->optional)
      continue;
    SCOPED_TRACE(pass->name.str());
    expectClose(run(*compile(options, Stage::planned, {pass->name.str()}), options.microBatchSize), expected);
  }
}

} // namespace
} // namespace fsdpc
