// The choice of values to save for backward within a memory budget.
#include "ir/text/text.h"
#include "passes/passes.h"
#include "passes/train/saved_budget.h"
#include "tests/unit/graph_under_test.h"

namespace fsdpc {
namespace {

constexpr int64_t samples = 4, width = 8;

/// A node costs its operations plus the bytes that it moves.
class PricedTarget final : public Target {
public:
  llvm::StringRef name() const override { return plain.name(); }
  int64_t alignmentBytes() const override { return plain.alignmentBytes(); }
  int64_t arenaGranuleBytes() const override { return plain.arenaGranuleBytes(); }
  int64_t workspaceBytes(const Node &node) const override { return plain.workspaceBytes(node); }
  bool operandInWindow(const Node &node, unsigned i) const override { return plain.operandInWindow(node, i); }
  bool resultInWindow(const Node &node) const override { return plain.resultInWindow(node); }
  bool mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const override {
    return plain.mayOverwriteOperand(node, result, operand);
  }
  double costMicroseconds(const Node &node) const override {
    Cost cost = infoOf(node).cost(node);
    return cost.flops + cost.bytesRead + cost.bytesWritten;
  }
  double exposedCopyMicroseconds(int64_t bytes, double beside) const override {
    return std::max(copyMicrosecondsPerByte * static_cast<double>(bytes) - beside, 0.0);
  }
  double copyMicrosecondsPerByte = 0;
  std::optional<std::string> unsupported(const Node &) const override { return std::nullopt; }

private:
  PlainTarget plain;
};

/// micro_step of a chain of equal blocks, each x + gelu(x w) v, and a head, differentiated.
class Chain {
public:
  explicit Chain(int blocks) {
    Value *x = graph.input("x", {samples, width});
    for (int i = 0; i < blocks; ++i)
      x = block(x, "block" + std::to_string(i));
    enter("head");
    graph.b.ret({graph.b.matmul(x, graph.parameter("head.w", {width, 3}))}, {"y"});
    PipelineOptions options;
    options.microBatchSize = samples;
    options.loss.kind = LossKind::crossEntropy;
    graph.runBlindly({&appendLoss, &differentiate}, options);
    runs = forwardRegions(*graph.module.function(FunctionKind::microStep));
  }

  Graph graph;
  std::vector<ForwardRegion> runs;

private:
  void enter(const std::string &unit) {
    graph.b.setSection({graph.module.addUnit({.name = unit, .source = "test"}), Phase::forward});
  }

  Value *block(Value *x, const std::string &name) {
    enter(name);
    Value *h = graph.b.matmul(x, graph.parameter(name + ".w", {width, 4 * width}));
    Value *z = graph.b.matmul(graph.b.unary(Op::gelu, h), graph.parameter(name + ".v", {4 * width, width}));
    return graph.b.add(x, z);
  }
};

double timeOf(llvm::ArrayRef<const SavedPoint *> choices) {
  double sum = 0;
  for (const SavedPoint *point : choices)
    sum += point->microseconds;
  return sum;
}

int64_t bytesOf(llvm::ArrayRef<const SavedPoint *> choices) {
  int64_t sum = 0;
  for (const SavedPoint *point : choices)
    sum += point->bytes;
  return sum;
}

TEST(SavedPoints, KeepEverythingOrTheProductsOrTheInputAlone) {
  Chain chain(2);
  ASSERT_EQ(chain.runs.size(), 2u);
  std::vector<SavedPoint> points = savedPoints(chain.runs[1], PricedTarget());
  ASSERT_EQ(points.size(), 3u) << toText(chain.graph.module);
  const int64_t wide = samples * 4 * width * 4;
  EXPECT_EQ(points[0].microseconds, 0);
  EXPECT_EQ(points[0].bytes - points[1].bytes, wide) << "gelu is computed again";
  EXPECT_EQ(points[1].bytes - points[2].bytes, wide) << "and so is the product";
}

TEST(SavedPoints, AreTheSameForEqualBlocks) {
  Chain chain(3);
  EXPECT_EQ(signatureOf(chain.runs[1], PricedTarget()), signatureOf(chain.runs[2], PricedTarget()));
}

void offloadAllButTheLast(Chain &chain) {
  for (ForwardRegion &run : llvm::drop_end(chain.runs))
    run.mayOffload = true;
}

size_t countOffloaded(llvm::ArrayRef<const SavedPoint *> choices) {
  return llvm::count_if(choices, [](const SavedPoint *point) { return point->isOffloaded; });
}

class SavedBudgetWithCopies : public testing::TestWithParam<std::optional<double>> {};

TEST_P(SavedBudgetWithCopies, NeverTakesLongerWithMoreAndStaysWithin) {
  Chain chain(5);
  PricedTarget target;
  if (GetParam()) {
    offloadAllButTheLast(chain);
    target.copyMicrosecondsPerByte = *GetParam();
  }
  PointsBySignature points;
  const int64_t least = bytesOf(choosePoints(chain.runs, target, 0, points));
  const int64_t most = bytesOf(choosePoints(chain.runs, target, 1, points));
  ASSERT_LT(least, most);
  double before = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= 100; ++i) {
    const std::vector<const SavedPoint *> choices = choosePoints(chain.runs, target, i / 100.0, points);
    EXPECT_LE(timeOf(choices), before) << i;
    EXPECT_LE(bytesOf(choices), least + (most - least) * (i / 100.0)) << i;
    before = timeOf(choices);
  }
  EXPECT_EQ(before, 0);
}

// No offload, and copies that are free, partly overlapped, and never worth their time.
INSTANTIATE_TEST_SUITE_P(Costs, SavedBudgetWithCopies, testing::Values(std::nullopt, 0, 20, 1e9));

TEST(SavedBudget, OffloadsWhereCopiesAreHiddenAndMemoryIsShort) {
  Chain chain(4);
  offloadAllButTheLast(chain);
  PricedTarget target;
  PointsBySignature points;
  const std::vector<const SavedPoint *> least = choosePoints(chain.runs, target, 0, points);
  EXPECT_EQ(countOffloaded(least), 3u);
  for (const SavedPoint *point : llvm::ArrayRef(least).drop_back())
    EXPECT_EQ(llvm::count(point->recomputed, true), 0) << "nothing is computed again that a hidden copy brings back";
  EXPECT_EQ(countOffloaded(choosePoints(chain.runs, target, 1, points)), 0u);
  const std::vector<const SavedPoint *> half = choosePoints(chain.runs, target, 0.5, points);
  EXPECT_EQ(countOffloaded(half), 2u);
  EXPECT_FALSE(half[2]->isOffloaded) << "what waits longest goes first";
}

TEST(SavedBudget, ComputesAgainWhereCopiesAreDear) {
  Chain chain(4);
  offloadAllButTheLast(chain);
  PricedTarget target;
  target.copyMicrosecondsPerByte = 1e9;
  PointsBySignature points;
  for (double budget : {0.5, 1.0})
    EXPECT_EQ(countOffloaded(choosePoints(chain.runs, target, budget, points)), 0u) << budget;
}

TEST(SavedBudget, IsTheBestOfAllChoices) {
  Chain chain(4);
  offloadAllButTheLast(chain);
  PricedTarget target;
  target.copyMicrosecondsPerByte = 20;
  PointsBySignature points;
  std::vector<std::vector<SavedPoint>> all;
  size_t combinations = 1;
  for (const ForwardRegion &run : chain.runs)
    combinations *= all.emplace_back(savedPoints(run, target)).size();
  const std::vector<const SavedPoint *> smallest = choosePoints(chain.runs, target, 0, points);
  const int64_t least = bytesOf(smallest), most = bytesOf(choosePoints(chain.runs, target, 1, points));
  for (double budget : {0.1, 0.3, 0.5, 0.8}) {
    double best = std::numeric_limits<double>::infinity();
    for (size_t code = 0; code < combinations; ++code) {
      std::vector<const SavedPoint *> choice;
      size_t rest = code;
      for (const std::vector<SavedPoint> &run : all) {
        choice.push_back(&run[rest % run.size()]);
        rest /= run.size();
      }
      if (static_cast<double>(bytesOf(choice) - least) <= budget * static_cast<double>(most - least))
        best = std::min(best, timeOf(choice));
    }
    EXPECT_DOUBLE_EQ(timeOf(choosePoints(chain.runs, target, budget, points)), best) << budget;
  }
}

} // namespace
} // namespace fsdpc
