// batch_norm, its statistics, their derivatives and the update of running statistics.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"

namespace fsdpc {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }

auto near(std::vector<double> expected) { return Pointwise(DoubleNear(1e-12), std::move(expected)); }

llvm::SmallVector<Value *, 4> norm(Builder &builder, llvm::ArrayRef<Value *> inputs) {
  return {builder.create(Op::batchNorm, inputs, BatchNormAttributes{.epsilon = 0.25})->result()};
}

llvm::SmallVector<Value *, 4> statistics(Builder &builder, llvm::ArrayRef<Value *> inputs) {
  Node *node = builder.create(Op::batchStatistics, inputs);
  return {node->result(0), node->result(1)};
}

/// x, weight, bias: normalised with the statistics of x.
llvm::SmallVector<Value *, 4> normOfBatch(Builder &builder, llvm::ArrayRef<Value *> inputs) {
  llvm::SmallVector<Value *, 5> operands(inputs);
  llvm::append_range(operands, statistics(builder, {inputs[0]}));
  return norm(builder, operands);
}

OP_TEST(batchNorm, NormalisesEveryChannelWithItsStatistics) {
  // Channels 0 and 1 of two samples of two elements.
  HostTensor x = tensorOf(f32({2, 2, 2}), {1, 2, 10, 20, 3, 4, 30, 40});
  std::vector<HostTensor> inputs = {x, tensorOf(f32({2}), {2, 1}), tensorOf(f32({2}), {0, 5}),
                                    tensorOf(f32({2}), {1, 20}), tensorOf(f32({2}), {0.75, 3.75})};
  EXPECT_THAT(valuesOf(inputs, norm)[0].values, near({0, 2, 0, 5, 4, 6, 10, 15}));
}

OP_TEST(batchNorm, HasTheDerivativeOfEveryOperandInEveryRank) {
  for (Shape shape : {Shape{5, 3}, Shape{2, 3, 4}, Shape{2, 3, 2, 2}, Shape{2, 2, 2, 1, 3}}) {
    Type vector = f32({shape[1]});
    checkGradients({.inputs = {{f32(shape)}, {vector}, {vector}, {vector}, {vector, 0.5, 2}}, .build = norm});
  }
}

OP_TEST(batchNorm, TrainingTakesTheStatisticsOfX) {
  auto training = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    BatchNormAttributes attributes{.epsilon = 0, .training = true};
    return {builder.create(Op::batchNorm, inputs, attributes)->result()};
  };
  HostTensor one(f32({1}), 1), other(f32({1}), 100);
  EXPECT_THAT(valuesOf({tensorOf(f32({2, 1}), {3, 7}), one, one, other, other}, training)[0].values, near({0, 2}));
}

OP_TEST(batchStatistics, AreMeanAndPopulationVariance) {
  std::vector<HostTensor> results = valuesOf({tensorOf(f32({2, 2, 2}), {1, 2, 5, 5, 3, 6, 5, 5})}, statistics);
  EXPECT_THAT(results[0].values, near({3, 5}));
  EXPECT_THAT(results[1].values, near({3.5, 0}));
  EXPECT_EQ(results[0].type, f32({2}));
}

OP_TEST(batchStatistics, HaveTheDerivativeByThemselvesAndBelowANorm) {
  checkGradients({.inputs = {{f32({3, 2, 4})}}, .build = statistics});
  checkGradients({.inputs = {{f32({4, 3})}, {f32({3})}, {f32({3})}}, .build = normOfBatch});
  checkGradients({.inputs = {{f32({2, 3, 2, 2})}, {f32({3})}, {f32({3})}}, .build = normOfBatch});
}

TEST(BatchNormFamily, KeepsStatisticsInF32ForSixteenBits) {
  llvm::SmallVector<Type, 4> types = inferredTypes(Op::batchStatistics, {Type(DType::bf16, {4, 3})});
  EXPECT_EQ(types[0], f32({3}));
  EXPECT_EQ(types[1], f32({3}));
}

OP_TEST(batchNormGrad, SumsOverTheElementsOfAChannel) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Node *node = builder.create(Op::batchNormGrad, inputs);
    return {node->result(0), node->result(1)};
  };
  std::vector<HostTensor> inputs = {tensorOf(f32({2, 2}), {1, 2, 3, 4}), tensorOf(f32({2, 2}), {5, 6, 7, 9}),
                                    tensorOf(f32({2}), {4, 8})};
  std::vector<HostTensor> results = valuesOf(inputs, build);
  EXPECT_THAT(results[0].values, near({1 * 1 + 3 * 3, 2 * -2 + 4 * 1}));
  EXPECT_THAT(results[1].values, near({4, 6}));
}

OP_TEST(updateStatistics, MovesByEachMicroStepInTurn) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::updateStatistics, inputs, UpdateStatisticsAttributes{.momentum = 0.5, .ranks = 2})
                ->result()};
  };
  HostTensor running = tensorOf(f32({1}), {8}), first = tensorOf(f32({1}), {4}), second = tensorOf(f32({1}), {1});
  // Ranks 0 and 1 are micro-step 0, ranks 2 and 3 micro-step 1: (8 + 4) / 2 = 6, (6 + 1) / 2.
  auto results = valuesOnRanks({{running, first}, {running, first}, {running, second}, {running, second}}, build);
  for (const auto &ofRank : results)
    EXPECT_THAT(ofRank[0].values, near({3.5}));
}

OP_TEST(batchSum, IsOverTheRanksOfItsMicroStepWhereItSaysHowMany) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::batchSum, inputs, BatchSumAttributes{2})->result()};
  };
  std::vector<std::vector<HostTensor>> inputs;
  for (double value : {1, 2, 10, 20})
    inputs.push_back({tensorOf(f32({1}), {value})});
  auto results = valuesOnRanks(inputs, build);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(results[rank][0].values, near({rank < 2 ? 3.0 : 30.0}));
  checkGradients({.inputs = {{f32({3})}}, .build = build, .ranks = 4});
}

TEST(BatchNormFamily, ReportsEveryBrokenConstraint) {
  Type x = f32({4, 3, 2}), vector = f32({3}), other = f32({2}), half(DType::bf16, {4, 3, 2}), halves(DType::bf16, {3});
  auto norm = [](llvm::ArrayRef<Type> operands, BatchNormAttributes attributes = {}) {
    return inferMessage(Op::batchNorm, operands, attributes);
  };
  EXPECT_EQ(norm({x, vector, vector, vector, vector}), "");
  EXPECT_EQ(norm({half, halves, halves, vector, vector}), "");
  EXPECT_THAT(norm({f32({3}), vector, vector, vector, vector}), HasSubstr("(C1)"));
  EXPECT_THAT(norm({f32({0, 3}), vector, vector, vector, vector}), HasSubstr("(C2)"));
  EXPECT_THAT(norm({x, other, vector, vector, vector}), HasSubstr("(C3)"));
  EXPECT_THAT(norm({half, halves, halves, halves, vector}), HasSubstr("(C4)"));
  EXPECT_THAT(norm({x, vector, vector, vector, vector}, {.epsilon = -1}), HasSubstr("(C5)"));
  EXPECT_THAT(norm({x, vector, vector, vector, vector}, {.momentum = 2}), HasSubstr("(C5)"));
  EXPECT_THAT(inferMessage(Op::batchStatistics, {Type(DType::i64, {4, 3})}), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::batchNormGrad, {x, half, vector}), HasSubstr("(C3)"));
  EXPECT_THAT(inferMessage(Op::batchNormGrad, {x, x, other}), HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::updateStatistics, {vector, other}, UpdateStatisticsAttributes{}), HasSubstr("(C2)"));
  EXPECT_THAT(inferMessage(Op::updateStatistics, {vector, vector}, UpdateStatisticsAttributes{.momentum = -1}),
              HasSubstr("(C3)"));
}

} // namespace
} // namespace fsdpc
