// Elementwise chains become one loop, also across reshapes. Values do not change.
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

class Fuse : public testing::Test {
protected:
  /// Uses a stage that allows `fused`. Passes look at nodes, not at the stage.
  Fuse() : step(*module.addFunction(FunctionKind::microStep)), b(step) { module.stage = Stage::sharded; }

  Value *input(Shape shape) {
    return step.addArgument(ArgumentKind::input, "x" + std::to_string(step.arguments().size()),
                            Type(DType::f32, std::move(shape)));
  }
  Value *biased(Value *x) { return b.add(x, b.broadcast(input({x->type().dim(-1)}), x->type().shape())); }

  void run(std::initializer_list<const Pass *> passes) {
    for (const Pass *pass : passes) {
      PipelineOptions options;
      PlainTarget target;
      std::vector<std::string> remarks;
      PassContext context{options, target, remarks};
      ASSERT_FALSE(pass->run(module, context));
      llvm::Error error = verify(module);
      ASSERT_FALSE(static_cast<bool>(error)) << llvm::toString(std::move(error)) << toText(module);
    }
  }

  /// Runs the passes. Results must stay bitwise identical.
  void expectSameValue(llvm::ArrayRef<Value *> results) {
    std::vector<std::string> names;
    for (size_t i = 0; i < results.size(); ++i)
      names.push_back("y" + std::to_string(i));
    b.ret(results, names);
    std::map<std::string, HostTensor> before = valuesNow();
    run({&alignShapes, &fuseElementwise});
    std::map<std::string, HostTensor> after = valuesNow();
    for (const std::string &name : names)
      EXPECT_EQ(after[name].values, before[name].values) << name << "\n" << toText(module);
  }

  std::map<std::string, HostTensor> valuesNow() {
    std::mt19937 generator(5);
    std::normal_distribution<double> normal;
    std::map<std::string, HostTensor> inputs;
    for (const Argument &argument : step.arguments()) {
      HostTensor tensor(argument.value->type());
      for (double &element : tensor.values)
        element = normal(generator);
      inputs[argument.name] = std::move(tensor);
    }
    EvaluationState state = makeEvaluationState(module, {});
    auto results = evaluate(module, {FunctionKind::microStep}, {inputs}, state);
    if (!results) {
      ADD_FAILURE() << llvm::toString(results.takeError());
      return {};
    }
    return (*results)[0];
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

TEST_F(Fuse, MeetsAResidualBehindAReshape) {
  Value *x = input({2, 3, 4}), *w = input({4, 4});
  Value *h = biased(b.matmul(input({6, 4}), w));
  Value *y = b.add(b.reshape(h, {2, 3, 4}), x);
  expectSameValue({b.matmul(b.reshape(y, {6, 4}), w)});
  EXPECT_EQ(count(Op::fused), 1);
  EXPECT_EQ(count(Op::broadcast), 0);
}

TEST_F(Fuse, KeepsAnActivationBetweenProducts) {
  Value *w = input({4, 4});
  Value *h = b.reshape(biased(b.matmul(input({6, 4}), w)), {2, 3, 4});
  Value *g = b.mul(b.unary(Op::tanh, h), b.constantLike(h, 0.5));
  expectSameValue({b.matmul(b.reshape(g, {6, 4}), w)});
  EXPECT_EQ(count(Op::fused), 1);
}

TEST_F(Fuse, GivesOtherReadersTheShapeTheyHad) {
  Value *x = input({2, 3, 4}), *w = input({4, 4});
  Value *h = biased(b.matmul(input({6, 4}), w));
  Value *sum = b.add(b.reshape(h, {2, 3, 4}), x);
  expectSameValue({sum, b.matmul(h, w)});
  EXPECT_EQ(count(Op::fused), 1);
}

TEST_F(Fuse, LeavesBroadcastsAlongOtherDimsAlone) {
  Value *h = b.matmul(input({6, 4}), input({4, 4}));
  Value *scaled = b.mul(h, b.broadcast(input({6, 1}), h->type().shape()));
  Value *once = b.add(b.reshape(scaled, {2, 3, 4}), input({2, 3, 4}));
  // The reshape splits the last dim, so not even a bias may be fused across it.
  Value *cut = b.reshape(biased(once), {2, 3, 2, 2});
  expectSameValue({b.add(cut, input({2, 3, 2, 2}))});
  EXPECT_EQ(count(Op::fused), 3);
}

TEST_F(Fuse, FollowsABroadcastWhoseDimsTheReshapeKeeps) {
  Value *h = b.matmul(input({2, 3, 4}), input({4, 4}));
  Value *scaled = b.mul(h, b.broadcast(input({3, 1}), h->type().shape()));
  expectSameValue({b.add(b.reshape(scaled, {1, 2, 3, 4}), input({1, 2, 3, 4}))});
  EXPECT_EQ(count(Op::fused), 1);
}

TEST_F(Fuse, AlignsALongChainInOneSweep) {
  Value *x = input({6, 4});
  for (int i = 0; i < 20000; ++i)
    x = b.reshape(b.unary(Op::neg, x), i % 2 ? Shape{6, 4} : Shape{2, 3, 4});
  b.ret({b.add(x, input({6, 4}))}, {"y"});
  run({&alignShapes});
  EXPECT_EQ(count(Op::neg), 20000);
  EXPECT_EQ(count(Op::reshape), 0);
}

TEST_F(Fuse, ReadsAValueOfManyUsesQuickly) {
  Value *x = b.unary(Op::neg, input({4}));
  llvm::SmallVector<Value *, 0> results;
  std::vector<std::string> names;
  for (int i = 0; i < 20000; ++i) {
    results.push_back(b.reduceSum(b.unary(Op::exp, x), {0}, false));
    names.push_back("y" + std::to_string(i));
  }
  b.ret(results, names);
  run({&fuseElementwise});
  EXPECT_EQ(count(Op::fused), 20001);
}

} // namespace
} // namespace fsdpc
