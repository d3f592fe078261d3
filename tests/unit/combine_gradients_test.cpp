// Sums of padded parts keep their value when the parts are concatenated.
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "tests/unit/plain_target.h"

#include "ir/builder.h"
#include <gtest/gtest.h>
#include <random>

namespace fsdpc {
namespace {

class CombineGradients : public testing::Test {
protected:
  CombineGradients() : step(*module.addFunction(FunctionKind::forward)), b(step) {}

  Value *input(Shape shape) {
    return step.addArgument(ArgumentKind::input, "x" + std::to_string(step.arguments().size()),
                            Type(DType::f32, std::move(shape)));
  }

  /// The value as `size` elements of the axis, beginning at `begin`.
  Value *padded(Value *part, int64_t axis, int64_t begin, int64_t size) {
    Shape none(part->type().rank(), 0), before = none, after = none;
    before[axis] = begin;
    after[axis] = size - begin - part->type().dim(axis);
    return b.create(Op::pad, {part}, PadAttributes{before, after, none})->result();
  }

  void run() {
    PipelineOptions options;
    PlainTarget target;
    std::vector<std::string> remarks;
    PassContext context{options, target, remarks};
    ASSERT_FALSE(combineGradients.run(module, context));
    llvm::Error error = verify(module);
    ASSERT_FALSE(static_cast<bool>(error)) << llvm::toString(std::move(error)) << toText(module);
  }

  /// Runs the pass. Integer values keep every sum exact.
  void expectSameValue(Value *result) {
    b.ret({result}, {"y"});
    std::vector<double> before = valuesNow();
    run();
    EXPECT_EQ(valuesNow(), before) << toText(module);
  }

  std::vector<double> valuesNow() {
    std::mt19937 generator(5);
    std::map<std::string, HostTensor> inputs;
    for (const Argument &argument : step.arguments()) {
      HostTensor tensor(argument.value->type());
      for (double &element : tensor.values)
        element = static_cast<double>(generator() % 100);
      inputs[argument.name] = std::move(tensor);
    }
    EvaluationState state = makeEvaluationState(module, {});
    auto results = evaluate(module, {FunctionKind::forward}, {inputs}, state);
    if (!results) {
      ADD_FAILURE() << llvm::toString(results.takeError());
      return {};
    }
    return (*results)[0]["y"].values;
  }

  int count(Op op) const {
    int count = 0;
    for (Node *node : step)
      count += node->op() == op;
    return count;
  }

  Module module;
  Function &step;
  Builder b;
};

TEST_F(CombineGradients, PutsPartsOfAnySizeSideBySide) {
  Value *q = padded(input({2, 5}), 1, 0, 9), *k = padded(input({2, 1}), 1, 5, 9), *v = padded(input({2, 3}), 1, 6, 9);
  expectSameValue(b.add(k, b.add(v, q)));
  EXPECT_EQ(count(Op::concat), 1);
  EXPECT_EQ(count(Op::add) + count(Op::pad), 0);
}

TEST_F(CombineGradients, KeepsWhatElseIsAdded) {
  Value *first = padded(input({2, 4}), 0, 0, 5), *second = padded(input({3, 4}), 0, 2, 5);
  Value *sum = b.add(b.add(input({5, 4}), second), input({5, 4}));
  expectSameValue(b.add(b.add(first, sum), input({5, 4})));
  EXPECT_EQ(count(Op::concat), 1);
  EXPECT_EQ(count(Op::add), 3);
}

TEST_F(CombineGradients, CombinesPartsThatAreWholesThemselves) {
  auto pair = [&](int64_t rows) {
    Value *left = padded(input({rows, 1}), 1, 0, 3), *right = padded(input({rows, 2}), 1, 1, 3);
    return b.add(left, right);
  };
  Value *top = padded(pair(2), 0, 0, 6), *bottom = padded(pair(4), 0, 2, 6);
  expectSameValue(b.add(bottom, top));
  EXPECT_EQ(count(Op::concat), 3);
  EXPECT_EQ(count(Op::add), 0);
}

TEST_F(CombineGradients, KeepsTwoTilingsOfOneAxis) {
  auto part = [&](int64_t begin) { return padded(input({2}), 0, begin, 4); };
  Value *once = b.add(part(0), part(2)), *twice = b.add(part(2), part(0));
  expectSameValue(b.add(once, twice));
  EXPECT_EQ(count(Op::concat), 0) << "parts overlap: nothing says which belong together";
}

TEST_F(CombineGradients, WalksOverALongSumOnce) {
  constexpr int64_t parts = 20000;
  Value *x = input({1}), *sum = nullptr;
  for (int64_t i = 0; i < parts; ++i) {
    Value *part = padded(b.unary(Op::neg, x), 0, i, parts);
    sum = sum ? b.add(sum, part) : part;
  }
  b.ret({sum}, {"y"});
  run();
  EXPECT_EQ(count(Op::concat), 1);
  EXPECT_EQ(count(Op::add), 0);
}

} // namespace
} // namespace fsdpc
