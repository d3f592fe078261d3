// cross_entropy and nll: torch's formula per position, ignored labels, smoothing, derivatives, constraints.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"
#include <cmath>
#include <limits>

namespace fsdpc {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }
Type i64(llvm::ArrayRef<int64_t> shape) { return Type(DType::i64, shape); }

auto near(std::vector<double> expected) { return Pointwise(DoubleNear(1e-12), std::move(expected)); }

/// Returns the terms and, if results = 2, lse, which must not have a cotangent.
BuildFunction lossOf(Op op, LossAttributes attributes, unsigned results = 1) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) {
    Node *node = builder.create(op, inputs, attributes);
    llvm::SmallVector<Value *, 4> values;
    for (unsigned i = 0; i < results; ++i)
      values.push_back(node->result(i));
    return values;
  };
}

const double l3 = std::log(3), l4 = std::log(4);

OP_TEST(crossEntropy, IsTheLogarithmOfTheLabelsProbability) {
  std::vector<HostTensor> inputs = {tensorOf(f32({2, 2}), {0, l3, 1000 + l3, 1000}), tensorOf(i64({2}), {1, 1})};
  std::vector<HostTensor> results = valuesOf(inputs, lossOf(Op::crossEntropy, {}, 2));
  EXPECT_THAT(results[0].values, near({l4 - l3, l4}));
  EXPECT_THAT(results[1].values, near({l4, 1000 + l4}));
}

OP_TEST(crossEntropy, SpreadsTheSmoothingMassOverAllClasses) {
  std::vector<HostTensor> inputs = {tensorOf(f32({2}), {0, l3}), tensorOf(i64({}), {1})};
  // 0.9 * (l4 - l3) + 0.1 / 2 * (l4 + (l4 - l3))
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::crossEntropy, {-100, 0.1}))[0].values, near({l4 - 0.95 * l3}));
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::crossEntropy, {-100, 1}))[0].values, near({l4 - 0.5 * l3}));
}

OP_TEST(crossEntropy, GivesIgnoredLabelsATermOfZeroWhateverTheSmoothing) {
  std::vector<HostTensor> inputs = {tensorOf(f32({2, 2}), {0, l3, 0, l3}), tensorOf(i64({2}), {-100, 1})};
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::crossEntropy, {}))[0].values, near({0, l4 - l3}));
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::crossEntropy, {1, 0.1}))[0].values.back(), 0.0);
}

OP_TEST(crossEntropy, LeavesAMaskedClassOutUnlessSmoothingAsksForIt) {
  double masked = -std::numeric_limits<double>::infinity();
  std::vector<HostTensor> inputs = {tensorOf(f32({3}), {0, l3, masked}), tensorOf(i64({}), {1})};
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::crossEntropy, {}))[0].values, near({l4 - l3}));
  EXPECT_EQ(valuesOf(inputs, lossOf(Op::crossEntropy, {-100, 0.1}))[0].values[0], -masked);
}

OP_TEST(crossEntropy, ShowsALabelThatIsNoClassAsNaN) {
  for (double label : {-1.0, 2.0}) {
    std::vector<HostTensor> inputs = {tensorOf(f32({2}), {0, 1}), tensorOf(i64({}), {label})};
    EXPECT_TRUE(std::isnan(valuesOf(inputs, lossOf(Op::crossEntropy, {}))[0].values[0]));
    EXPECT_TRUE(std::isnan(gradientsOf(inputs, lossOf(Op::crossEntropy, {}))[0].values[0]));
  }
}

OP_TEST(crossEntropy, HasTheDerivativeOfTheLogitsWithSmoothingAndIgnoredLabels) {
  GradientInput labels{i64({2, 3}), 0, 1, {0, 4, -100, 2, 2, 1}};
  for (double smoothing : {0.0, 0.1, 1.0})
    checkGradients({.inputs = {{f32({2, 3, 5}), -2, 2}, labels}, .build = lossOf(Op::crossEntropy, {-100, smoothing})});
  GradientInput classes{i64({2, 3}), 0, 1, {0, 4, 1, 2, 2, 1}};
  checkGradients({.inputs = {{f32({2, 3, 5}), -2, 2}, classes}, .build = lossOf(Op::crossEntropy, {2, 0.1})});
  checkGradients({.inputs = {{f32({3, 1})}, {i64({3}), 0, 1}}, .build = lossOf(Op::crossEntropy, {})});
}

OP_TEST(crossEntropyGrad, IsProbabilityMinusTargetTimesTheTermsCotangent) {
  BuildFunction build = lossOf(Op::crossEntropyGrad, {-100, 0.5});
  std::vector<HostTensor> inputs = {tensorOf(f32({2}), {2, 7}), tensorOf(f32({2, 2}), {0, l3, 0, l3}),
                                    tensorOf(i64({2}), {1, -100}), tensorOf(f32({2}), {l4, l4})};
  EXPECT_THAT(valuesOf(inputs, build)[0].values, near({0, 0, 0, 0}));
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::crossEntropyGrad, {}))[0].values, near({0.5, -0.5, 0, 0}));
}

OP_TEST(nll, IsTheNegativeOfTheLabelsEntry) {
  std::vector<HostTensor> inputs = {tensorOf(f32({3, 2}), {-1, -2, -3, -4, -5, -6}), tensorOf(i64({3}), {1, 0, -100})};
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::nll, {}))[0].values, near({2, 3, 0}));
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::nll, {1}))[0].values[0], 0.0);
  EXPECT_TRUE(std::isnan(valuesOf(inputs, lossOf(Op::nll, {1}))[0].values[2]));
}

OP_TEST(nll, HasTheDerivativeOfTheLogProbabilities) {
  GradientInput labels{i64({2, 3}), 0, 1, {0, 4, -100, 2, 2, 1}};
  checkGradients({.inputs = {{f32({2, 3, 5})}, labels}, .build = lossOf(Op::nll, {})});
  GradientInput classes{i64({3}), 0, 1, {0, 1, 0}};
  checkGradients({.inputs = {{f32({3, 2})}, classes}, .build = lossOf(Op::nll, {1})});
}

OP_TEST(nllGrad, PutsTheNegatedCotangentAtTheLabel) {
  std::vector<HostTensor> inputs = {tensorOf(f32({2}), {2, 7}), HostTensor(f32({2, 3})), tensorOf(i64({2}), {2, -100})};
  EXPECT_THAT(valuesOf(inputs, lossOf(Op::nllGrad, {}))[0].values, near({0, 0, -2, 0, 0, 0}));
}

TEST(LossConstraints, OfScoresAndLabelsAreReportedByLabel) {
  for (Op op : {Op::crossEntropy, Op::nll}) {
    EXPECT_EQ(inferMessage(op, {f32({2, 3, 5}), i64({2, 3})}, LossAttributes{}), "");
    EXPECT_THAT(inferMessage(op, {f32({}), i64({})}, LossAttributes{}), HasSubstr("(C1)"));
    EXPECT_THAT(inferMessage(op, {f32({2, 0}), i64({2})}, LossAttributes{}), HasSubstr("(C1)"));
    EXPECT_THAT(inferMessage(op, {i64({2, 3}), i64({2})}, LossAttributes{}), HasSubstr("(C1)"));
    EXPECT_THAT(inferMessage(op, {f32({2, 3}), i64({3})}, LossAttributes{}), HasSubstr("(C2)"));
    EXPECT_THAT(inferMessage(op, {f32({2, 3}), Type(DType::i32, {2})}, LossAttributes{}), HasSubstr("(C2)"));
    EXPECT_THAT(inferMessage(op, {f32({2, 3}), i64({2})}, LossAttributes{-100, 1.5}), HasSubstr("(C3)"));
    EXPECT_THAT(inferMessage(op, {f32({2, 3}), i64({2})}, LossAttributes{-100, std::nan("")}), HasSubstr("(C3)"));
  }
  EXPECT_THAT(inferMessage(Op::nll, {f32({2, 3}), i64({2})}, LossAttributes{-100, 0.1}), HasSubstr("(C3)"));
}

TEST(LossConstraints, OfCotangentsAreReportedByLabel) {
  auto crossEntropyGrad = [](Type dterms, Type lse) {
    return inferMessage(Op::crossEntropyGrad, {dterms, f32({2, 3}), i64({2}), lse}, LossAttributes{});
  };
  EXPECT_EQ(crossEntropyGrad(f32({2}), f32({2})), "");
  EXPECT_THAT(crossEntropyGrad(f32({3}), f32({2})), HasSubstr("(C4) dterms"));
  EXPECT_THAT(crossEntropyGrad(f32({2}), f32({2, 1})), HasSubstr("(C4) lse"));
  EXPECT_THAT(inferMessage(Op::crossEntropyGrad, {f32({2}), f32({2, 3}), i64({3}), f32({2})}, LossAttributes{}),
              HasSubstr("(C2)"));
  auto nllGrad = [](Type dterms, LossAttributes attributes) {
    return inferMessage(Op::nllGrad, {dterms, f32({2, 3}), i64({2})}, attributes);
  };
  EXPECT_EQ(nllGrad(f32({2}), {}), "");
  EXPECT_THAT(nllGrad(f32({}), {}), HasSubstr("(C4)"));
  EXPECT_THAT(nllGrad(f32({2}), {-100, 0.1}), HasSubstr("(C3)"));
}

} // namespace
} // namespace fsdpc
