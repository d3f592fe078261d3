// Steps with batch norm. Running statistics are updated once per micro-step, by PyTorch's rule, and are equal on all
// ranks. Every stage computes the same as the train stage. Synced statistics are those of the entire batch.
#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "passes/check/check_schedule.h"
#include "passes/pipeline.h"
#include "passes/runner.h"
#include "tests/unit/plain_target.h"

#include <gtest/gtest.h>
#include <random>

namespace fsdpc {
namespace {

using Tensors = std::map<std::string, HostTensor>;

constexpr int64_t samples = 24, channels = 3, classes = 4;
constexpr double momentum = 0.25;

using Recompute = ActivationCheckpointing;

struct Cut {
  int64_t ranks = 1, microSteps = 1;
  bool synced = false;
  Strategy strategy = Strategy::fullShard;
  Recompute checkpointing = Recompute::none;
  friend void PrintTo(const Cut &cut, std::ostream *out) {
    *out << cut.ranks << " ranks, " << cut.microSteps << " micro-steps, " << (cut.synced ? "synced, " : "")
         << spelled(cut.strategy) << ", " << spelled(cut.checkpointing);
  }
};

void addState(Module &module, const std::string &name, const Shape &shape, bool isBuffer) {
  Parameter parameter;
  parameter.name = parameter.initializer = name;
  parameter.type = Type(DType::f32, shape);
  parameter.trainable = !isBuffer;
  parameter.isBuffer = isBuffer;
  parameter.unit = name.substr(0, name.find('.'));
  module.parameters.push_back(parameter);
  State state;
  state.name = name;
  state.role = isBuffer ? StateRole::buffer : StateRole::parameter;
  state.type = parameter.type;
  state.trainable = !isBuffer;
  module.addState(std::move(state));
}

/// logits = relu(norm(relu(norm(x)) w1)) w2. The first norm has statistics of the data, the second those of values that
/// depend on trained parameters.
std::unique_ptr<Module> makeNet(const Cut &cut) {
  auto module = std::make_unique<Module>();
  for (const char *unit : {"a", "b"}) {
    module->addUnit({unit, "test", {.strategy = cut.strategy, .activationCheckpointing = cut.checkpointing}});
    for (const char *name : {".weight", ".bias", ".running_mean", ".running_var"})
      addState(*module, std::string(unit) + name, {channels}, name[1] == 'r');
  }
  addState(*module, "a.fc", {channels, channels}, false);
  addState(*module, "b.fc", {channels, classes}, false);
  Function &forward = *module->addFunction(FunctionKind::forward);
  const int64_t batch = samples / (cut.ranks * cut.microSteps);
  Value *x = forward.addArgument(ArgumentKind::input, "x", Type(DType::f32, {batch, channels}));
  Builder builder(forward);
  auto read = [&](const std::string &name) { return builder.readState(*module->state(name)); };
  for (int32_t unit : {0, 1}) {
    builder.setSection({unit, Phase::forward});
    const std::string name = module->units[unit].name;
    BatchNormAttributes attributes{.epsilon = 0.01, .training = true, .synced = cut.synced, .momentum = momentum};
    x = builder
            .create(Op::batchNorm,
                    {x, read(name + ".weight"), read(name + ".bias"), read(name + ".running_mean"),
                     read(name + ".running_var")},
                    attributes)
            ->result();
    x = builder.matmul(builder.unary(Op::relu, x), read(name + ".fc"));
  }
  builder.setSection({});
  builder.ret({x}, {"logits"});
  return module;
}

std::unique_ptr<Module> compile(const Cut &cut, Stage stage) {
  PipelineOptions options;
  options.worldSize = cut.ranks;
  options.microSteps = cut.microSteps;
  options.microBatchSize = samples / (cut.ranks * cut.microSteps);
  options.choices.strategy = cut.strategy;
  options.shardDegree = cut.strategy == Strategy::hybridShard ? 2 : -1;
  options.loss.kind = LossKind::crossEntropy;
  options.optimizer.kind = OptimizerKind::sgd;
  options.optimizer.scalars = {{"lr", 0.1}, {"weight_decay", 0}, {"momentum", 0}, {"dampening", 0}};
  auto module = makeNet(cut);
  PlainTarget target;
  std::vector<std::string> remarks;
  PassContext context{options, target, remarks};
  RunnerOptions runner;
  runner.stopAfter = stage;
  std::vector<PassTime> times;
  std::unique_ptr<Module> train;
  auto observer = [&](Stage left, const Module &at) {
    if (left == Stage::train)
      train = cantFail(parse(llvm::MemoryBufferRef(toText(at), "train")));
  };
  llvm::Error error = runPasses(*module, context, runner, times, observer);
  EXPECT_FALSE(static_cast<bool>(error)) << toString(std::move(error));
  if (stage != Stage::planned)
    return module;
  if (llvm::Error fault = checkPlanned(*module))
    ADD_FAILURE() << toString(std::move(fault)) << toText(*module);
  if (llvm::Error fault = checkAgainstTrain(*train, *module))
    ADD_FAILURE() << toString(std::move(fault)) << toText(*module);
  return module;
}

/// The global batch in order, split by ranks of the train stage.
std::vector<Tensors> pieces(int64_t batch) {
  std::mt19937 generator(3);
  std::normal_distribution<double> normal(5, 2);
  std::vector<Tensors> inputs(samples / batch);
  for (size_t piece = 0; piece < inputs.size(); ++piece) {
    HostTensor x(Type(DType::f32, {batch, channels})), labels(Type(DType::i64, {batch}));
    for (double &value : x.values)
      value = normal(generator);
    for (int64_t i = 0; i < batch; ++i)
      labels.values[i] = static_cast<double>((static_cast<int64_t>(piece) * batch + i) % classes);
    inputs[piece] = {{"x", x}, {"labels", labels}, {"sample_weight", HostTensor(Type(DType::f32, {batch}), 1)}};
  }
  return inputs;
}

Tensors startValues(const Module &module) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> uniform(0.5, 1.5);
  Tensors values;
  for (const Parameter &parameter : module.parameters) {
    HostTensor tensor(parameter.type);
    for (double &value : tensor.values)
      value = uniform(generator);
    values[parameter.name] = tensor;
  }
  return values;
}

/// Parameters and running statistics after `steps` steps. EXPECTs equal running statistics on all ranks.
Tensors trained(const Module &module, const Cut &cut, int steps) {
  EvaluationState state = makeEvaluationState(module, startValues(module));
  const std::vector<Tensors> inputs = pieces(samples / (cut.ranks * cut.microSteps));
  for (int step = 0; step < steps; ++step) {
    constexpr FunctionKind kinds[] = {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::update};
    auto results =
        module.stage == Stage::train ? evaluate(module, kinds, inputs, state) : evaluateStep(module, inputs, state);
    if (!results)
      ADD_FAILURE() << toString(results.takeError()) << toText(module);
  }
  for (const State &buffer : module.states)
    for (const auto &ofRank : state.states)
      if (buffer.role == StateRole::buffer) {
        EXPECT_EQ(ofRank.at(buffer.name).values, state.states[0].at(buffer.name).values) << buffer.name;
      }
  return fullParameters(module, state);
}

void expectClose(const Tensors &actual, const Tensors &expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto &[name, tensor] : expected)
    for (size_t i = 0; i < tensor.values.size(); ++i)
      EXPECT_NEAR(actual.at(name).values[i], tensor.values[i], 1e-9) << name << "[" << i << "]";
}

class BatchNormSteps : public testing::TestWithParam<Cut> {};

TEST_P(BatchNormSteps, EveryStageComputesTheTrainStage) {
  const Cut cut = GetParam();
  const Tensors expected = trained(*compile(cut, Stage::train), cut, 2);
  for (Stage stage : {Stage::sharded, Stage::async, Stage::planned})
    expectClose(trained(*compile(cut, stage), cut, 2), expected);
}

INSTANTIATE_TEST_SUITE_P(Cuts, BatchNormSteps,
                         testing::Values(Cut{1, 1}, Cut{2, 1}, Cut{2, 1, true}, Cut{2, 3}, Cut{2, 3, true}, Cut{1, 4},
                                         Cut{4, 2, false, Strategy::hybridShard}, Cut{4, 1, true, Strategy::noShard},
                                         Cut{2, 2, false, Strategy::fullShard, Recompute::full},
                                         Cut{3, 1, true, Strategy::shardGradOp, Recompute::full},
                                         Cut{2, 2, true, Strategy::shardOptimizer, Recompute::selective}));

TEST(BatchNormStatistics, SyncedOnesAreThoseOfTheWholeBatch) {
  const Cut whole{1, 1, true}, apart{3, 1, true};
  expectClose(trained(*compile(apart, Stage::planned), apart, 2), trained(*compile(whole, Stage::train), whole, 2));
}

/// Checks the norm of the data against PyTorch's rule. Each micro-step moves by the average over its ranks.
TEST(BatchNormStatistics, MoveOncePerMicroStepByTheUnbiasedVariance) {
  const Cut cut{2, 3};
  auto module = compile(cut, Stage::planned);
  const Tensors start = startValues(*module), found = trained(*module, cut, 1);
  const int64_t batch = samples / (cut.ranks * cut.microSteps);
  const std::vector<Tensors> inputs = pieces(batch);
  for (int64_t channel = 0; channel < channels; ++channel) {
    double mean = start.at("a.running_mean").values[channel], variance = start.at("a.running_var").values[channel];
    for (int64_t microStep = 0; microStep < cut.microSteps; ++microStep) {
      double newMean = 0, newVariance = 0;
      for (int64_t rank = 0; rank < cut.ranks; ++rank) {
        const std::vector<double> &x = inputs[microStep * cut.ranks + rank].at("x").values;
        double own = 0, squares = 0;
        for (int64_t i = 0; i < batch; ++i)
          own += x[i * channels + channel] / static_cast<double>(batch);
        for (int64_t i = 0; i < batch; ++i)
          squares += (x[i * channels + channel] - own) * (x[i * channels + channel] - own);
        newMean += own / static_cast<double>(cut.ranks);
        newVariance += squares / static_cast<double>((batch - 1) * cut.ranks);
      }
      mean += momentum * (newMean - mean);
      variance += momentum * (newVariance - variance);
    }
    EXPECT_NEAR(found.at("a.running_mean").values[channel], mean, 1e-6); // the factor 4/3 is an f32
    EXPECT_NEAR(found.at("a.running_var").values[channel], variance, 1e-6);
  }
}

/// The checker's error for the plan with every `from` in its text replaced by `to`.
std::string faultOf(const Cut &cut, llvm::StringRef from, llvm::StringRef to) {
  std::string text = toText(*compile(cut, Stage::planned));
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from.str() << " in\n" << text;
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  auto planned = cantFail(parse(llvm::MemoryBufferRef(text, "planned")));
  return toString(checkAgainstTrain(*compile(cut, Stage::train), *planned));
}

TEST(BatchNormChecker, SeesAnotherMomentumAndAnotherCount) {
  for (const Cut &cut : {Cut{2, 1}, Cut{2, 3}}) {
    EXPECT_NE(faultOf(cut, "0.75", "0.5"), "");     // weight of the old statistics
    EXPECT_NE(faultOf(cut, ", 0.25", ", 0.3"), ""); // weight of the new ones
  }
}

} // namespace
} // namespace fsdpc
