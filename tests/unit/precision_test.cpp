// The dtype that gradients are sent in. Every stage rounds where the train stage does, the checker refuses other
// roundings, and casts move no more bytes than the model needs.
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "passes/check/check_schedule.h"
#include "passes/passes.h"
#include "passes/runner.h"
#include "tests/unit/plain_target.h"
#include "tests/unit/small_net.h"

#include <gmock/gmock.h>
#include <set>

namespace fsdpc {
namespace {

using testing::HasSubstr;

struct Compiled {
  std::string train;
  std::unique_ptr<Module> module;
};

/// Continues the compile from the module's stage.
Compiled continued(std::unique_ptr<Module> module, const PipelineOptions &options, Stage stage = Stage::planned,
                   const std::vector<std::string> &skip = {}) {
  Compiled compiled;
  compiled.module = std::move(module);
  PlainTarget target;
  std::vector<std::string> remarks;
  PassContext context{options, target, remarks};
  RunnerOptions runner;
  runner.stopAfter = stage;
  runner.skip = skip;
  std::vector<PassTime> times;
  llvm::Error error = runPasses(*compiled.module, context, runner, times, [&](Stage left, const Module &at) {
    if (left == Stage::train)
      compiled.train = toText(at);
  });
  EXPECT_FALSE(static_cast<bool>(error)) << toString(std::move(error));
  return compiled;
}

Compiled compile(const PipelineOptions &options, Stage stage, const std::vector<std::string> &skip = {},
                 llvm::ArrayRef<std::pair<std::string, DType>> reduceDTypes = {}) {
  std::unique_ptr<Module> module = SmallNet::make(options.microBatchSize);
  module->microSteps = options.microSteps;
  for (Unit &unit : module->units)
    unit.choices = options.choices;
  for (const auto &[unit, dtype] : reduceDTypes)
    module->units[module->unitIndex(unit)].choices.reduceDType = dtype;
  return continued(std::move(module), options, stage, skip);
}

PipelineOptions optionsOf(DType param, DType reduce) {
  PipelineOptions options;
  options.worldSize = 2;
  options.microBatchSize = 4;
  options.paramDType = param;
  options.reduceDType = reduce;
  options.loss.kind = LossKind::crossEntropy;
  options.optimizer.kind = OptimizerKind::sgd;
  options.optimizer.scalars = {{"lr", 0.1}, {"weight_decay", 0.01}};
  return options;
}

/// The checker's verdict on a planned module, given its train module.
std::string verdict(const std::string &train, const Module &planned) {
  if (llvm::Error error = checkPlanned(planned))
    return toString(std::move(error));
  auto parsed = parse(llvm::MemoryBufferRef(train, "train"));
  if (!parsed)
    return toString(parsed.takeError());
  llvm::Error error = checkAgainstTrain(**parsed, planned);
  return error ? toString(std::move(error)) : "";
}

using Tensors = std::map<std::string, HostTensor>;

Tensors parametersOf(const Module &module) {
  std::mt19937 generator(7);
  std::normal_distribution<double> normal(0, 0.5);
  Tensors tensors;
  for (const Parameter &parameter : module.parameters) {
    HostTensor tensor(parameter.type);
    for (double &value : tensor.values)
      value = normal(generator);
    tensors[parameter.name] = std::move(tensor);
  }
  return tensors;
}

std::vector<Tensors> batches(const PipelineOptions &options) {
  std::mt19937 generator(11);
  std::normal_distribution<double> normal;
  std::vector<Tensors> inputs(options.worldSize);
  for (Tensors &own : inputs) {
    HostTensor x(Type(DType::f32, {options.microBatchSize, SmallNet::inputs}));
    HostTensor labels(Type(DType::i64, {options.microBatchSize})),
        weight(Type(DType::f32, {options.microBatchSize}), 1);
    for (double &value : x.values)
      value = normal(generator);
    for (size_t i = 0; i < labels.values.size(); ++i)
      labels.values[i] = static_cast<double>(i % 3);
    own = {{"x", x}, {"labels", labels}, {"sample_weight", weight}};
  }
  return inputs;
}

/// Gradients and updated parameters.
std::pair<Tensors, Tensors> run(const Module &module, const PipelineOptions &options) {
  Tensors gradients;
  EvaluationState state = makeEvaluationState(module, parametersOf(module));
  auto results = evaluate(
      module, {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::tapGradients, FunctionKind::update},
      batches(options), state, &gradients);
  EXPECT_TRUE(static_cast<bool>(results)) << toString(results.takeError());
  return {gradients, fullParameters(module, state)};
}

void expectEqual(const Tensors &actual, const Tensors &expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto &[name, tensor] : expected)
    EXPECT_EQ(actual.at(name).values, tensor.values) << name;
}

class Precision : public testing::TestWithParam<std::tuple<DType, DType, bool>> {};

TEST_P(Precision, EveryStageRoundsWhereTheTrainStageDoes) {
  auto [param, reduce, isKept] = GetParam();
  PipelineOptions options = optionsOf(param, reduce);
  options.keepLowPrecisionGrads = isKept;
  auto [gradients, parameters] = run(*compile(options, Stage::train).module, options);
  for (const HostTensor &gradient : llvm::make_second_range(gradients))
    for (double value : gradient.values)
      EXPECT_EQ(value, roundedTo(reduce, value)) << "it is what has arrived";
  for (Stage stage : {Stage::sharded, Stage::async, Stage::planned}) {
    SCOPED_TRACE(nameOf(stage).str());
    Compiled compiled = compile(options, stage);
    if (stage == Stage::planned) {
      EXPECT_EQ(verdict(compiled.train, *compiled.module), "");
    }
    auto [ownGradients, ownParameters] = run(*compiled.module, options);
    expectEqual(ownGradients, gradients);
    expectEqual(ownParameters, parameters);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Precision,
                         testing::Combine(testing::Values(DType::f32, DType::bf16),
                                          testing::Values(DType::bf16, DType::f16), testing::Bool()));

/// Every strategy and accumulation mode, so that rounded sums are combined with sums over micro-steps and replicas.
std::vector<PipelineOptions> manyOptions(DType param, DType reduce) {
  std::vector<PipelineOptions> all;
  for (Strategy strategy :
       {Strategy::fullShard, Strategy::shardGradOp, Strategy::shardOptimizer, Strategy::noShard, Strategy::hybridShard})
    for (auto [microSteps, accumulation] :
         {std::pair(1, Accumulation::reduce), {2, Accumulation::reduce}, {2, Accumulation::keepGradients}}) {
      PipelineOptions options = optionsOf(param, reduce);
      options.worldSize = 4;
      options.choices.strategy = strategy;
      options.choices.accumulation = accumulation;
      options.replicateDegree = strategy == Strategy::hybridShard ? 2 : 1;
      options.microSteps = microSteps;
      all.push_back(options);
    }
  return all;
}

std::string textOf(const PipelineOptions &options) {
  return spelled(options.choices.strategy) + " " + spelled(options.choices.accumulation) + " " +
         std::to_string(options.microSteps);
}

TEST(Precision, TheCheckerRefusesAReductionInAnotherType) {
  for (DType param : {DType::f32, DType::bf16}) {
    std::vector<PipelineOptions> right = manyOptions(param, DType::bf16), plain = manyOptions(param, DType::f32),
                                 other = manyOptions(param, DType::f16);
    for (size_t i = 0; i < right.size(); ++i) {
      SCOPED_TRACE(textOf(right[i]));
      Compiled compiled = compile(right[i], Stage::planned);
      EXPECT_EQ(verdict(compiled.train, *compiled.module), "");
      for (const PipelineOptions &wrong : {plain[i], other[i]}) {
        Compiled different = compile(wrong, Stage::planned);
        EXPECT_EQ(verdict(different.train, *different.module), "");
        EXPECT_THAT(verdict(compiled.train, *different.module), HasSubstr("differs from the train module's"));
        EXPECT_THAT(verdict(different.train, *compiled.module), HasSubstr("differs from the train module's"));
      }
    }
  }
}

/// The train module with every gradient rounded to `dtype` before it is rounded to the dtype that is sent.
std::unique_ptr<Module> roundedBefore(const std::string &text, DType dtype) {
  auto train = parse(llvm::MemoryBufferRef(text, "train"));
  EXPECT_TRUE(static_cast<bool>(train)) << toString(train.takeError());
  Function &step = *(*train)->function(FunctionKind::microStep);
  int changed = 0;
  for (Node *node : step)
    if (node->op() == Op::batchSum && node->result()->type().dtype() == DType::bf16) {
      Node *cast = node->operand(0)->definer();
      EXPECT_EQ(cast->op(), Op::cast);
      Builder builder(step, cast);
      builder.inherit(*cast);
      cast->setOperand(0, builder.cast(builder.cast(cast->operand(0), dtype), DType::f32));
      ++changed;
    }
  EXPECT_EQ(changed, 4);
  return std::move(*train);
}

TEST(Precision, TheCheckerRefusesAGradientThatIsRoundedTwice) {
  for (const PipelineOptions &options : manyOptions(DType::f32, DType::bf16)) {
    SCOPED_TRACE(textOf(options));
    Compiled compiled = compile(options, Stage::planned);
    std::string other = toText(*roundedBefore(compiled.train, DType::f16));
    EXPECT_THAT(verdict(other, *compiled.module), HasSubstr("differs from the train module's"));
  }
}

/// Also for the dtype that is sent: with a sum over micro-steps in between, the result differs.
TEST(Precision, TheCheckerRefusesRoundingBeforeAndBehindASumOverMicroSteps) {
  PipelineOptions options = optionsOf(DType::f32, DType::bf16);
  options.microSteps = 2;
  for (Accumulation accumulation : {Accumulation::keepGradients, Accumulation::reduce}) {
    options.choices.accumulation = accumulation;
    std::string train = compile(options, Stage::train).train;
    Compiled wrong = continued(roundedBefore(train, DType::bf16), options);
    EXPECT_THAT(verdict(train, *wrong.module), HasSubstr("differs from the train module's")) << spelled(accumulation);
  }
}

TEST(Precision, UnitsMayReduceInTypesOfTheirOwn) {
  PipelineOptions options = optionsOf(DType::bf16, DType::bf16);
  options.allGatherBucketBytes = options.reduceBucketBytes = 1 << 20; // neighbours with equal choices are joined
  Compiled compiled = compile(options, Stage::planned, {}, {{"first", DType::f32}});
  EXPECT_EQ(verdict(compiled.train, *compiled.module), "");
  const Function &step = *compiled.module->function(FunctionKind::microStep);
  std::map<DType, int> sums;
  for (const Node *node : step)
    sums[node->op() == Op::reduceScatterStart ? node->operand(0)->type().dtype() : DType::boolean]++;
  EXPECT_EQ(sums[DType::f32], 1);
  EXPECT_EQ(sums[DType::bf16], 1);
}

// ---- bytes that casts move

bool isFloatCast(const Node &node) {
  return node.op() == Op::cast && isFloat(node.result()->type().dtype()) && isFloat(node.operand(0)->type().dtype());
}

/// Bytes read and written by the casts of a function between float types that are not fused into a loop.
int64_t bytesCast(const Function &function) {
  int64_t bytes = 0;
  for (const Node *node : function)
    if (isFloatCast(*node))
      bytes += node->operand(0)->type().bytes() + node->result()->type().bytes();
  return bytes;
}

/// Nothing is cast twice to one type within a phase, no cast is cast again, and no parameter is cast.
void expectNoRedundantCast(const Function &function) {
  std::set<std::tuple<const Value *, DType, Phase>> seen;
  for (const Node *node : function) {
    if (!isFloatCast(*node))
      continue;
    const Node *definer = node->operand(0)->definer();
    EXPECT_TRUE(seen.insert({node->operand(0), node->result()->type().dtype(), node->section.phase}).second)
        << toText(*node);
    EXPECT_FALSE(definer && isFloatCast(*definer)) << toText(*node);
    EXPECT_FALSE(definer && (definer->op() == Op::view || definer->op() == Op::allGather)) << toText(*node);
  }
}

constexpr int64_t single = 4, half = 2;

int64_t elementsOfSegments(const Module &module) {
  int64_t elements = 0;
  for (const State &state : module.states)
    if (state.role == StateRole::segment && state.trainable)
      elements += state.type.elements();
  return elements;
}

TEST(CastBytes, OfAStepInBfloat16AreThoseOfItsInput) {
  const PipelineOptions options = optionsOf(DType::bf16, DType::f32);
  std::unique_ptr<Module> module = compile(options, Stage::sharded, {"fuse_elementwise"}).module;
  const Function &step = *module->function(FunctionKind::microStep), &update = *module->function(FunctionKind::update);
  expectNoRedundantCast(step);
  const int64_t input = options.microBatchSize * SmallNet::inputs;
  // The third unit reads a weight of the second: its two gradients are added in f32, as both sums are.
  EXPECT_EQ(bytesCast(step), input * (single + half));
  EXPECT_EQ(bytesCast(update), 0);
}

TEST(CastBytes, OfGradientsSentInBfloat16AreThoseOfTheirSharesAlone) {
  PipelineOptions options = optionsOf(DType::bf16, DType::bf16);
  std::unique_ptr<Module> module = compile(options, Stage::sharded, {"fuse_elementwise"}).module;
  const Function &step = *module->function(FunctionKind::microStep), &update = *module->function(FunctionKind::update);
  expectNoRedundantCast(step);
  expectNoRedundantCast(update);
  const int64_t input = options.microBatchSize * SmallNet::inputs, shared = SmallNet::hidden * SmallNet::classes;
  EXPECT_EQ(bytesCast(step), (input + shared) * (single + half)) << "of two uses the sum is rounded";
  EXPECT_EQ(bytesCast(update), elementsOfSegments(*module) * (single + half));
  options.keepLowPrecisionGrads = true;
  EXPECT_EQ(bytesCast(*compile(options, Stage::sharded, {"fuse_elementwise"}).module->function(FunctionKind::update)),
            0);
}

} // namespace
} // namespace fsdpc
