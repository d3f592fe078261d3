// max_pool and average_pool: ties, padding, ceil mode's extra padding, derivatives, constraints.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"
#include <cmath>
#include <limits>

namespace fsdpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }
Type i32(llvm::ArrayRef<int64_t> shape) { return Type(DType::i32, shape); }

PoolAttributes kernelOf(Shape kernel) {
  PoolAttributes attributes;
  attributes.strides.assign(kernel.size(), 1);
  attributes.dilations.assign(kernel.size(), 1);
  attributes.padsBefore.assign(kernel.size(), 0);
  attributes.padsAfter.assign(kernel.size(), 0);
  attributes.kernel = std::move(kernel);
  return attributes;
}

/// All results of a pooling op.
BuildFunction pool(Op op, PoolAttributes attributes) {
  return [op, attributes](Builder &builder, llvm::ArrayRef<Value *> inputs) {
    Node *node = builder.create(op, inputs, attributes);
    llvm::SmallVector<Value *, 4> results;
    for (unsigned i = 0; i < node->resultCount(); ++i)
      results.push_back(node->result(i));
    return results;
  };
}

OP_TEST(maxPool, LetsTheFirstOfEqualElementsWin) {
  std::vector<HostTensor> results =
      valuesOf({tensorOf(f32({1, 1, 4}), {1, 3, 3, 2})}, pool(Op::maxPool, kernelOf({2})));
  EXPECT_THAT(results[0].values, ElementsAre(3, 3, 3));
  EXPECT_EQ(results[1].type, i32({1, 1, 3}));
  EXPECT_THAT(results[1].values, ElementsAre(1, 1, 2));
}

OP_TEST(maxPool, NeverLetsPaddingWin) {
  PoolAttributes attributes = kernelOf({2});
  attributes.padsBefore = attributes.padsAfter = {1};
  std::vector<HostTensor> results = valuesOf({tensorOf(f32({1, 1, 2}), {-5, -7})}, pool(Op::maxPool, attributes));
  EXPECT_THAT(results[0].values, ElementsAre(-5, -5, -7));
  EXPECT_THAT(results[1].values, ElementsAre(0, 0, 1));
}

OP_TEST(maxPool, CountsIndicesWithinThePlaneOfEachChannel) {
  PoolAttributes attributes = kernelOf({2, 2});
  attributes.strides = {2, 1};
  HostTensor x = tensorOf(f32({1, 2, 2, 3}), {0, 9, 1, 2, 3, 4, -1, -2, -3, -4, -5, -0.5});
  std::vector<HostTensor> results = valuesOf({x}, pool(Op::maxPool, attributes));
  EXPECT_THAT(results[0].values, ElementsAre(9, 9, -1, -0.5));
  EXPECT_THAT(results[1].values, ElementsAre(1, 1, 0, 5));
}

OP_TEST(maxPool, GivesAWindowOfMinusInfinitiesItsFirstIndex) {
  double smallest = -std::numeric_limits<double>::infinity();
  std::vector<HostTensor> results =
      valuesOf({tensorOf(f32({1, 1, 3}), {0, smallest, smallest})}, pool(Op::maxPool, kernelOf({2})));
  EXPECT_THAT(results[0].values, ElementsAre(0, smallest));
  EXPECT_THAT(results[1].values, ElementsAre(0, 1));
}

OP_TEST(maxPool, PassesANaNOn) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<HostTensor> results = valuesOf({tensorOf(f32({1, 1, 3}), {5, nan, 7})}, pool(Op::maxPool, kernelOf({3})));
  EXPECT_TRUE(std::isnan(results[0].values[0]));
  EXPECT_THAT(results[1].values, ElementsAre(1));
}

OP_TEST(maxPool, HasTheDerivativeOfOverlappingPaddedAndDilatedWindows) {
  auto check = [](Type x, const PoolAttributes &attributes) {
    checkGradients({.inputs = {{std::move(x)}},
                    .build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
                      return {builder.create(Op::maxPool, inputs, attributes)->result()};
                    }});
  };
  check(f32({2, 3, 5}), kernelOf({2}));
  PoolAttributes attributes = kernelOf({3, 2});
  attributes.strides = {2, 1};
  attributes.dilations = {1, 2};
  attributes.padsBefore = {1, 0};
  attributes.padsAfter = {0, 1};
  check(f32({2, 1, 5, 4}), attributes);
  check(f32({1, 2, 3, 1, 2}), kernelOf({2, 1, 2}));
}

OP_TEST(maxPoolGrad, SendsEveryCotangentToItsWinnerAndAddsUp) {
  PoolAttributes attributes = kernelOf({2});
  attributes.shape = {1, 2, 3};
  std::vector<HostTensor> inputs = {tensorOf(f32({1, 2, 2}), {1, 10, 100, 1000}),
                                    tensorOf(i32({1, 2, 2}), {1, 1, 0, 2})};
  EXPECT_THAT(valuesOf(inputs, pool(Op::maxPoolGrad, attributes))[0].values, ElementsAre(0, 11, 0, 100, 0, 1000));
}

OP_TEST(maxPoolGrad, GivesATieToTheFirst) {
  BuildFunction build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::maxPool, inputs, kernelOf({3}))->result()};
  };
  EXPECT_THAT(gradientsOf({tensorOf(f32({1, 1, 3}), {2, 2, 1})}, build)[0].values, ElementsAre(1, 0, 0));
}

OP_TEST(averagePool, CountsPaddingOnlyWhenAskedTo) {
  PoolAttributes attributes = kernelOf({2});
  attributes.padsBefore = attributes.padsAfter = {1};
  HostTensor x = tensorOf(f32({1, 1, 2}), {4, 6});
  EXPECT_THAT(valuesOf({x}, pool(Op::averagePool, attributes))[0].values, ElementsAre(4, 5, 6));
  attributes.countIncludePad = true;
  EXPECT_THAT(valuesOf({x}, pool(Op::averagePool, attributes))[0].values, ElementsAre(2, 5, 3));
}

OP_TEST(averagePool, AveragesAPlane) {
  HostTensor x = tensorOf(f32({1, 2, 2, 2}), {1, 2, 3, 6, -1, -2, -3, -6});
  EXPECT_THAT(valuesOf({x}, pool(Op::averagePool, kernelOf({2, 2})))[0].values, ElementsAre(3, -3));
}

OP_TEST(averagePool, HasTheDerivativeWithAndWithoutCountedPadding) {
  PoolAttributes attributes = kernelOf({3, 2});
  attributes.strides = {2, 1};
  attributes.padsBefore = {1, 0};
  attributes.padsAfter = {1, 1};
  checkGradients({.inputs = {{f32({2, 3, 5, 1})}}, .build = pool(Op::averagePool, attributes)});
  attributes.countIncludePad = true;
  checkGradients({.inputs = {{f32({2, 3, 5, 1})}}, .build = pool(Op::averagePool, attributes)});
}

OP_TEST(averagePoolGrad, SharesEveryCotangentOutOverItsWindow) {
  PoolAttributes attributes = kernelOf({2});
  attributes.padsBefore = {1};
  attributes.shape = {1, 1, 2};
  HostTensor dy = tensorOf(f32({1, 1, 2}), {3, 8});
  EXPECT_THAT(valuesOf({dy}, pool(Op::averagePoolGrad, attributes))[0].values, ElementsAre(7, 4));
  attributes.countIncludePad = true;
  EXPECT_THAT(valuesOf({dy}, pool(Op::averagePoolGrad, attributes))[0].values, ElementsAre(5.5, 4));
}

/// The constraints that both ops share.
void expectSharedConstraints(Op op) {
  EXPECT_EQ(inferMessage(op, {f32({1, 1, 3})}, kernelOf({2})), "");
  EXPECT_THAT(inferMessage(op, {f32({1, 1})}, kernelOf({})), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(op, {f32({1, 1, 3, 3})}, kernelOf({2})), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(op, {f32({1, 1, 3})}, kernelOf({0})), HasSubstr("(C2)"));
  EXPECT_THAT(inferMessage(op, {f32({1, 1, 3})}, kernelOf({4})), HasSubstr("(C3)"));
  PoolAttributes jumpsOver = kernelOf({2});
  jumpsOver.dilations = {2};
  jumpsOver.padsBefore = {1};
  jumpsOver.padsAfter = {1};
  EXPECT_THAT(inferMessage(op, {f32({1, 1, 1})}, jumpsOver), HasSubstr("(C4)"));
  PoolAttributes behind = kernelOf({1});
  behind.padsAfter = {1};
  EXPECT_THAT(inferMessage(op, {f32({1, 1, 2})}, behind), HasSubstr("(C4)"));
  PoolAttributes before = kernelOf({2});
  before.padsBefore = {2};
  EXPECT_THAT(inferMessage(op, {f32({1, 1, 2})}, before), HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(op, {i32({1, 1, 3})}, kernelOf({2})), HasSubstr("(C5)"));
}

TEST(MaxPoolConstraints, AreReportedByLabel) {
  expectSharedConstraints(Op::maxPool);
  int64_t side = int64_t(1) << 16;
  EXPECT_THAT(inferMessage(Op::maxPool, {f32({1, 1, side, side})}, kernelOf({1, 1})), HasSubstr("(C6)"));
}

TEST(AveragePoolConstraints, AreReportedByLabel) { expectSharedConstraints(Op::averagePool); }

TEST(MaxPoolGradConstraints, AreReportedByLabel) {
  PoolAttributes attributes = kernelOf({2});
  attributes.shape = {1, 1, 3};
  EXPECT_EQ(inferMessage(Op::maxPoolGrad, {f32({1, 1, 2}), i32({1, 1, 2})}, attributes), "");
  EXPECT_THAT(inferMessage(Op::maxPoolGrad, {f32({1, 1, 2}), f32({1, 1, 2})}, attributes), HasSubstr("(C6)"));
  EXPECT_THAT(inferMessage(Op::maxPoolGrad, {f32({1, 1, 3}), i32({1, 1, 3})}, attributes), HasSubstr("(C7)"));
  EXPECT_THAT(inferMessage(Op::maxPoolGrad, {f32({1, 1, 2}), i32({1, 1, 1})}, attributes), HasSubstr("(C7)"));
  attributes.shape = {1, -1, 3};
  EXPECT_THAT(inferMessage(Op::maxPoolGrad, {f32({1, 1, 2}), i32({1, 1, 2})}, attributes), HasSubstr("(C8)"));
}

TEST(AveragePoolGradConstraints, AreReportedByLabel) {
  PoolAttributes attributes = kernelOf({2});
  attributes.shape = {1, 1, 3};
  EXPECT_EQ(inferMessage(Op::averagePoolGrad, {f32({1, 1, 2})}, attributes), "");
  EXPECT_THAT(inferMessage(Op::averagePoolGrad, {i32({1, 1, 2})}, attributes), HasSubstr("(C5)"));
  EXPECT_THAT(inferMessage(Op::averagePoolGrad, {f32({1, 2, 2})}, attributes), HasSubstr("(C7)"));
}

} // namespace
} // namespace fsdpc
