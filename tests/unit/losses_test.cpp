// Every loss equals its formula over the global batch, on any number of ranks, and its gradient is its derivative.
#include "ir/eval/evaluate.h"
#include "passes/runner.h"
#include "tests/unit/plain_target.h"
#include "tests/unit/small_net.h"

#include <cmath>
#include <gtest/gtest.h>

namespace fsdpc {
namespace {

using Tensors = std::map<std::string, HostTensor>;

constexpr int64_t globalBatch = 12;

struct Case {
  const char *kind;
  const char *reduction;
  double labelSmoothing = 0;
};

void PrintTo(const Case &tested, std::ostream *out) {
  *out << tested.kind << " " << tested.reduction << " " << tested.labelSmoothing;
}

class Losses : public testing::TestWithParam<std::tuple<Case, int64_t>> {
protected:
  bool isClassLoss() const { return tested.kind == std::string("cross_entropy") || tested.kind == std::string("nll"); }

  void SetUp() override {
    std::tie(tested, ranks) = GetParam();
    options.worldSize = ranks;
    options.microBatchSize = globalBatch / ranks;
    options.loss.kind = *choiceFrom<LossKind>(tested.kind);
    options.loss.reduction = *choiceFrom<LossReduction>(tested.reduction);
    options.loss.labelSmoothing = tested.labelSmoothing;
    options.optimizer.kind = OptimizerKind::sgd;
    options.optimizer.scalars = {{"lr", 0.1}};
    module = SmallNet::make(options.microBatchSize);
    std::vector<std::string> remarks;
    PlainTarget target;
    PassContext context{options, target, remarks};
    RunnerOptions runner;
    runner.stopAfter = Stage::train;
    std::vector<PassTime> times;
    llvm::Error error = runPasses(*module, context, runner, times);
    ASSERT_FALSE(static_cast<bool>(error)) << toString(std::move(error));
    makeData();
  }

  void makeData() {
    std::mt19937 generator(5);
    std::normal_distribution<double> normal(0, 0.7);
    for (const Parameter &parameter : module->parameters) {
      HostTensor tensor(parameter.type);
      for (double &value : tensor.values)
        value = normal(generator);
      parameters[parameter.name] = std::move(tensor);
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t batch = options.microBatchSize;
      HostTensor x(Type(DType::f32, {batch, SmallNet::inputs})), weight(Type(DType::f32, {batch}), 1);
      for (double &value : x.values)
        value = normal(generator);
      HostTensor labels(isClassLoss() ? Type(DType::i64, {batch}) : Type(DType::f32, {batch, SmallNet::classes}));
      for (size_t i = 0; i < labels.values.size(); ++i) {
        int64_t sample = rank * batch + static_cast<int64_t>(i);
        labels.values[i] = !isClassLoss()    ? (sample % 2 == 0 ? 1.0 : 0.0)
                           : sample % 5 == 1 ? -100
                                             : static_cast<double>(sample % 3);
      }
      inputs.push_back({{"x", x}, {"labels", labels}, {"sample_weight", weight}});
    }
  }

  RankResults run(llvm::ArrayRef<FunctionKind> kinds, Tensors *taps = nullptr) {
    EvaluationState state = makeEvaluationState(*module, parameters);
    auto results = evaluate(*module, kinds, inputs, state, taps);
    if (results)
      return *results;
    ADD_FAILURE() << toString(results.takeError());
    return {};
  }

  double loss() { return run({FunctionKind::prologue, FunctionKind::microStep}).at(0).at("loss").values.at(0); }

  double expectedLoss() {
    RankResults evaluated = run({FunctionKind::evalStep});
    double sum = 0, count = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const HostTensor &output = evaluated[rank].at("output.logits"), &labels = inputs[rank].at("labels");
      for (int64_t i = 0; i < options.microBatchSize; ++i)
        isClassLoss() ? addClassTerm(output, labels, i, sum, count) : addElementTerms(output, labels, i, sum, count);
    }
    return tested.reduction == std::string("mean") ? sum / count : sum;
  }

  void addClassTerm(const HostTensor &output, const HostTensor &labels, int64_t row, double &sum, double &count) {
    if (labels.values[row] == -100)
      return;
    const double *logits = &output.values[row * SmallNet::classes];
    double total = 0, mean = 0;
    for (int64_t j = 0; j < SmallNet::classes; ++j)
      total += std::exp(logits[j]);
    double logTotal = tested.kind == std::string("nll") ? 0 : std::log(total);
    for (int64_t j = 0; j < SmallNet::classes; ++j)
      mean += (logTotal - logits[j]) / SmallNet::classes;
    double own = logTotal - logits[static_cast<int64_t>(labels.values[row])];
    sum += (1 - tested.labelSmoothing) * own + tested.labelSmoothing * mean;
    count += 1;
  }

  void addElementTerms(const HostTensor &output, const HostTensor &labels, int64_t row, double &sum, double &count) {
    for (int64_t j = 0; j < SmallNet::classes; ++j) {
      double x = output.values[row * SmallNet::classes + j], y = labels.values[row * SmallNet::classes + j];
      std::string kind = tested.kind;
      sum += kind == "mse"  ? (x - y) * (x - y)
             : kind == "l1" ? std::fabs(x - y)
                            : -(y * std::log(1 / (1 + std::exp(-x))) + (1 - y) * std::log(1 / (1 + std::exp(x))));
      count += 1;
    }
  }

  Case tested{};
  int64_t ranks = 1;
  PipelineOptions options;
  std::unique_ptr<Module> module;
  Tensors parameters;
  std::vector<Tensors> inputs;
};

TEST_P(Losses, IsItsFormulaOverTheGlobalBatch) { EXPECT_NEAR(loss(), expectedLoss(), 1e-10); }

TEST_P(Losses, HasTheGradientOfTheOneGlobalLoss) {
  Tensors gradients;
  run({FunctionKind::prologue, FunctionKind::microStep, FunctionKind::tapGradients}, &gradients);
  for (const auto &[name, gradient] : gradients)
    for (size_t i = 0; i < gradient.values.size(); i += 3) {
      constexpr double step = 1e-5;
      double &value = parameters[name].values[i];
      double kept = value;
      value = kept + step;
      double above = loss();
      value = kept - step;
      double below = loss();
      value = kept;
      EXPECT_NEAR(gradient.values[i], (above - below) / (2 * step), 1e-5) << name << "[" << i << "]";
    }
}

INSTANTIATE_TEST_SUITE_P(KindsAndRanks, Losses,
                         testing::Combine(testing::Values(Case{"cross_entropy", "mean"}, Case{"cross_entropy", "sum"},
                                                          Case{"cross_entropy", "mean", 0.1}, Case{"nll", "mean"},
                                                          Case{"nll", "sum"}, Case{"mse", "mean"}, Case{"mse", "sum"},
                                                          Case{"l1", "mean"}, Case{"bce_with_logits", "mean"},
                                                          Case{"bce_with_logits", "sum"}),
                                          testing::Values(1, 3)));

} // namespace
} // namespace fsdpc
