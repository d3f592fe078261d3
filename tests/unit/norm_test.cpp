// softmax, log_softmax, layer_norm and rms_norm: values by hand, derivatives, constraints.
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

BuildFunction along(Op op, int64_t axis) {
  return [op, axis](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(op, inputs, AxisAttributes{axis})->result()};
  };
}

std::vector<double> valuesAlong(Op op, int64_t axis, const std::vector<HostTensor> &inputs) {
  return valuesOf(inputs, along(op, axis))[0].values;
}

/// Equal up to rounding.
auto near(std::vector<double> expected) { return Pointwise(DoubleNear(1e-12), std::move(expected)); }

OP_TEST(softmax, DividesExponentialsByTheirSumAlongTheAxis) {
  double l2 = std::log(2), l5 = std::log(5);
  EXPECT_THAT(valuesAlong(Op::softmax, 0, {tensorOf(f32({3}), {0, l2, l5})}), near({0.125, 0.25, 0.625}));
  HostTensor columns = tensorOf(f32({2, 2, 2}), {0, l2, 0, l2, l5, 0, l5, 0});
  EXPECT_THAT(valuesAlong(Op::softmax, 1, {columns}), near({0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}));
  EXPECT_THAT(valuesAlong(Op::softmax, 1, {tensorOf(f32({2, 1}), {3, 7})}), near({1, 1}));
}

OP_TEST(softmax, NeitherOverflowsNorMindsMaskedElements) {
  double masked = -std::numeric_limits<double>::infinity();
  EXPECT_THAT(valuesAlong(Op::softmax, 0, {tensorOf(f32({3}), {5000, masked, 5000})}), near({0.5, 0, 0.5}));
  const double least = std::numeric_limits<float>::lowest();
  EXPECT_THAT(valuesAlong(Op::softmax, 0, {tensorOf(f32({2}), {least, least})}), near({0.5, 0.5}));
}

OP_TEST(softmax, HasTheDerivativeAlongEveryAxis) {
  for (int64_t axis = 0; axis < 4; ++axis)
    checkGradients({.inputs = {{f32({3, 1, 5, 2}), -2, 2}}, .build = along(Op::softmax, axis)});
}

OP_TEST(softmaxGrad, ProjectsTheCotangent) {
  EXPECT_THAT(valuesAlong(Op::softmaxGrad, 0, {tensorOf(f32({2}), {0.25, 0.75}), tensorOf(f32({2}), {1, 0})}),
              near({0.1875, -0.1875}));
}

OP_TEST(logSoftmax, IsTheLogarithmOfSoftmax) {
  EXPECT_THAT(valuesAlong(Op::logSoftmax, 0, {tensorOf(f32({3}), {0, std::log(2), std::log(5)})}),
              near({std::log(0.125), std::log(0.25), std::log(0.625)}));
  EXPECT_THAT(valuesAlong(Op::logSoftmax, 0, {tensorOf(f32({2}), {-3000, 3000})}), near({-6000, 0}));
}

OP_TEST(logSoftmax, HasTheDerivativeAlongEveryAxis) {
  for (int64_t axis = 0; axis < 4; ++axis)
    checkGradients({.inputs = {{f32({3, 1, 5, 2}), -2, 2}}, .build = along(Op::logSoftmax, axis)});
}

OP_TEST(logSoftmaxGrad, TakesTheCotangentsSumOffByProbability) {
  std::vector<HostTensor> inputs = {tensorOf(f32({2}), {std::log(0.25), std::log(0.75)}), tensorOf(f32({2}), {1, 3})};
  EXPECT_THAT(valuesAlong(Op::logSoftmaxGrad, 0, inputs), near({0, 0}));
}

OP_TEST(softmax, OfAnEmptyTensorIsEmpty) {
  EXPECT_TRUE(valuesAlong(Op::softmax, 1, {HostTensor(f32({0, 3}))}).empty());
  EXPECT_TRUE(valuesAlong(Op::softmax, 1, {HostTensor(f32({2, 0}))}).empty());
}

/// Constraints shared by softmax, log_softmax and their derivatives. The derivatives take y and dy.
void expectAxisConstraints(Op op, bool gradient) {
  auto message = [&](Type type, int64_t axis) {
    std::vector<Type> operands(gradient ? 2 : 1, type);
    return inferMessage(op, operands, AxisAttributes{axis});
  };
  EXPECT_EQ(message(f32({2, 3}), 1), "");
  EXPECT_THAT(message(f32({2, 3}), 2), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({2, 3}), -1), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({}), 0), HasSubstr("(C1)"));
  EXPECT_THAT(message(Type(DType::i64, {2, 3}), 1), HasSubstr("(C2)"));
  if (gradient) {
    EXPECT_THAT(inferMessage(op, {f32({2, 3}), f32({3, 2})}, AxisAttributes{1}), HasSubstr("(C3)"));
  }
}

TEST(SoftmaxFamily, ReportsEveryBrokenConstraint) {
  expectAxisConstraints(Op::softmax, false);
  expectAxisConstraints(Op::logSoftmax, false);
  expectAxisConstraints(Op::softmaxGrad, true);
  expectAxisConstraints(Op::logSoftmaxGrad, true);
}

/// Returns the first `results` results of a norm. Only y may have a cotangent.
BuildFunction norm(Op op, NormAttributes attributes, unsigned results) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) {
    Node *node = builder.create(op, inputs, attributes);
    llvm::SmallVector<Value *, 4> values;
    for (unsigned i = 0; i < results; ++i)
      values.push_back(node->result(i));
    return values;
  };
}

OP_TEST(layerNorm, CentresScalesAndShifts) {
  std::vector<HostTensor> inputs = {tensorOf(f32({1, 4}), {1, 2, 3, 6}), tensorOf(f32({4}), {1, 2, 3, 4}),
                                    tensorOf(f32({4}), {0, 0, 0, 10})};
  std::vector<HostTensor> results = valuesOf(inputs, norm(Op::layerNorm, {1, 0.5}, 3)); // variance 3.5
  EXPECT_THAT(results[0].values, near({-1, -1, 0, 16}));
  EXPECT_EQ(results[1].type, f32({1}));
  EXPECT_THAT(results[1].values, near({3}));
  EXPECT_THAT(results[2].values, near({0.5}));
}

OP_TEST(layerNorm, NormalisesSeveralDimsTogether) {
  HostTensor ones(f32({2, 1}), 1), zeros(f32({2, 1}), 0);
  std::vector<HostTensor> results =
      valuesOf({tensorOf(f32({2, 2, 1}), {1, 3, 10, 30}), ones, zeros}, norm(Op::layerNorm, {1, 0}, 3));
  EXPECT_THAT(results[0].values, near({-1, 1, -1, 1}));
  EXPECT_THAT(results[1].values, near({2, 20}));
  EXPECT_THAT(results[2].values, near({1, 0.1}));
}

OP_TEST(layerNorm, HasTheDerivativeOfEveryOperandOverEveryAxis) {
  checkGradients({.inputs = {{f32({2, 3, 5})}, {f32({5})}, {f32({5})}}, .build = norm(Op::layerNorm, {2, 1e-5}, 1)});
  checkGradients(
      {.inputs = {{f32({2, 3, 1})}, {f32({3, 1})}, {f32({3, 1})}}, .build = norm(Op::layerNorm, {1, 1e-2}, 1)});
  checkGradients({.inputs = {{f32({3, 2})}, {f32({3, 2})}, {f32({3, 2})}}, .build = norm(Op::layerNorm, {0, 1e-5}, 1)});
  checkGradients({.inputs = {{f32({3, 1})}, {f32({1})}, {f32({1})}}, .build = norm(Op::layerNorm, {1, 1e-2}, 1)});
}

OP_TEST(layerNorm, HasTheDerivativeOfSomeOperandsOnly) {
  GradientInput fixedX{f32({2, 3}), -1, 1, {}, false}, fixedScale{f32({3}), -1, 1, {}, false};
  checkGradients({.inputs = {fixedX, {f32({3})}, {f32({3})}}, .build = norm(Op::layerNorm, {1, 1e-5}, 1)});
  checkGradients({.inputs = {{f32({2, 3})}, fixedScale, fixedScale}, .build = norm(Op::layerNorm, {1, 1e-5}, 1)});
}

OP_TEST(layerNormGrad, OfOneRowMatchesTheHandComputedTable) {
  // n = (-1, 0, 1), h = dy * gamma = (6, 0, 0): average(h) = 2, average(h * n) = -2, dx = rstd * (h - 2 + 2 * n).
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Node *node = builder.create(Op::layerNormGrad, inputs, NormAttributes{1, 1e-5});
    return {node->result(0), node->result(1), node->result(2)};
  };
  std::vector<HostTensor> results =
      valuesOf({tensorOf(f32({1, 3}), {3, 0, 0}), tensorOf(f32({1, 3}), {3, 5, 7}), tensorOf(f32({3}), {2, 5, 1}),
                tensorOf(f32({1}), {5}), tensorOf(f32({1}), {0.5})},
               build);
  EXPECT_THAT(results[0].values, near({1, -1, 0}));
  EXPECT_THAT(results[1].values, near({-3, 0, 0}));
  EXPECT_THAT(results[2].values, near({3, 0, 0}));
}

OP_TEST(layerNorm, NormalisesTheSumWithAResidualAndGivesIt) {
  std::vector<HostTensor> inputs = {tensorOf(f32({1, 4}), {0, 3, 1, 6}), tensorOf(f32({4}), {1, 2, 3, 4}),
                                    tensorOf(f32({4}), {0, 0, 0, 10}), tensorOf(f32({1, 4}), {1, -1, 2, 0})};
  std::vector<HostTensor> results = valuesOf(inputs, norm(Op::layerNorm, {1, 0.5}, 4)); // of 1, 2, 3, 6
  EXPECT_THAT(results[0].values, near({-1, -1, 0, 16}));
  EXPECT_THAT(results[1].values, near({3}));
  EXPECT_THAT(results[2].values, near({0.5}));
  EXPECT_EQ(results[3].type, f32({1, 4}));
  EXPECT_THAT(results[3].values, near({1, 2, 3, 6}));
}

OP_TEST(rmsNorm, NormalisesTheSumRoundedToItsType) {
  Type bf16(DType::bf16, {1, 2});
  std::vector<HostTensor> inputs = {tensorOf(bf16, {256, 256}), tensorOf(Type(DType::bf16, {2}), {1, 1}),
                                    tensorOf(bf16, {1, 0})}; // 257 is not a bf16 value: a tie, rounded to the even 256
  std::vector<HostTensor> results = valuesOf(inputs, norm(Op::rmsNorm, {1, 0}, 3));
  EXPECT_THAT(results[2].values, near({256, 256}));
  EXPECT_THAT(results[1].values, near({1.0 / 256}));
}

OP_TEST(rmsNormGrad, AddsItsAddendToTheRoundedCotangent) {
  Type row(DType::bf16, {1, 2});
  std::vector<HostTensor> inputs = {tensorOf(row, {129.0 / 128, 0}), tensorOf(row, {0, 1}),
                                    tensorOf(Type(DType::bf16, {2}), {129, 1}), tensorOf(f32({1}), {1}),
                                    tensorOf(row, {127, 4})};
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> operands) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::rmsNormGrad, operands, NormAttributes{1, 1e-5})->result(0)};
  };
  // x is 0 where dy is not. dx is 130.008, which rounds to 130. 257 is a tie and rounds to the even 256, while 257.008
  // would round to 258.
  EXPECT_THAT(valuesOf(inputs, build)[0].values, near({256, 4}));
}

OP_TEST(layerNormGrad, AddsItsAddendToTheCotangentOfXOnly) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Node *node = builder.create(Op::layerNormGrad, inputs, NormAttributes{1, 1e-5});
    return {node->result(0), node->result(1), node->result(2)};
  };
  std::vector<HostTensor> results =
      valuesOf({tensorOf(f32({1, 3}), {3, 0, 0}), tensorOf(f32({1, 3}), {3, 5, 7}), tensorOf(f32({3}), {2, 5, 1}),
                tensorOf(f32({1}), {5}), tensorOf(f32({1}), {0.5}), tensorOf(f32({1, 3}), {10, 20, 30})},
               build);
  EXPECT_THAT(results[0].values, near({11, 19, 30}));
  EXPECT_THAT(results[1].values, near({-3, 0, 0}));
  EXPECT_THAT(results[2].values, near({3, 0, 0}));
}

TEST(NormConstraints, OfAddedOperandsAreReportedByLabel) {
  NormAttributes attributes{1, 1e-5};
  auto messages = [&](Type added) {
    return std::vector<std::string>{
        inferMessage(Op::layerNorm, {f32({2, 3}), f32({3}), f32({3}), added}, attributes),
        inferMessage(Op::rmsNorm, {f32({2, 3}), f32({3}), added}, attributes),
        inferMessage(Op::layerNormGrad, {f32({2, 3}), f32({2, 3}), f32({3}), f32({2}), f32({2}), added}, attributes),
        inferMessage(Op::rmsNormGrad, {f32({2, 3}), f32({2, 3}), f32({3}), f32({2}), added}, attributes)};
  };
  EXPECT_THAT(messages(f32({2, 3})), testing::Each(""));
  EXPECT_THAT(messages(f32({3})), testing::Each(HasSubstr("(C8)")));
  EXPECT_THAT(messages(Type(DType::bf16, {2, 3})), testing::Each(HasSubstr("(C8)")));
}

OP_TEST(layerNorm, OfNoRowsIsEmpty) {
  std::vector<HostTensor> inputs = {HostTensor(f32({0, 3})), HostTensor(f32({3})), HostTensor(f32({3}))};
  EXPECT_EQ(valuesOf(inputs, norm(Op::layerNorm, {1, 0}, 1))[0].type, f32({0, 3}));
}

OP_TEST(rmsNorm, DividesByTheRootOfTheMeanSquare) {
  std::vector<HostTensor> inputs = {tensorOf(f32({2, 2}), {1, 7, 0, 0}), tensorOf(f32({2}), {1, 2})};
  std::vector<HostTensor> results = valuesOf(inputs, norm(Op::rmsNorm, {1, 11}, 2)); // 25 + 11 and 0 + 11
  EXPECT_THAT(results[0].values, near({1.0 / 6, 14.0 / 6, 0, 0}));
  EXPECT_EQ(results[1].type, f32({2}));
  EXPECT_THAT(results[1].values, near({1.0 / 6, 1 / std::sqrt(11.0)}));
}

OP_TEST(rmsNorm, HasTheDerivativeOfEveryOperandOverEveryAxis) {
  checkGradients({.inputs = {{f32({2, 3, 5})}, {f32({5})}}, .build = norm(Op::rmsNorm, {2, 1e-5}, 1)});
  checkGradients({.inputs = {{f32({2, 3, 1})}, {f32({3, 1})}}, .build = norm(Op::rmsNorm, {1, 1e-2}, 1)});
  checkGradients({.inputs = {{f32({3, 2})}, {f32({3, 2})}}, .build = norm(Op::rmsNorm, {0, 1e-5}, 1)});
  checkGradients({.inputs = {{f32({2, 3}), -1, 1, {}, false}, {f32({3})}}, .build = norm(Op::rmsNorm, {1, 1e-5}, 1)});
  checkGradients({.inputs = {{f32({2, 3})}, {f32({3}), -1, 1, {}, false}}, .build = norm(Op::rmsNorm, {1, 1e-5}, 1)});
}

OP_TEST(rmsNormGrad, OfOneRowMatchesTheHandComputedTable) {
  // n = (1, 0, 2), h = dy * gamma = (6, 0, 0): average(h * n) = 2, dx = rstd * (h - 2 * n).
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Node *node = builder.create(Op::rmsNormGrad, inputs, NormAttributes{1, 1e-5});
    return {node->result(0), node->result(1)};
  };
  std::vector<HostTensor> results = valuesOf({tensorOf(f32({1, 3}), {3, 0, 0}), tensorOf(f32({1, 3}), {2, 0, 4}),
                                              tensorOf(f32({3}), {2, 5, 1}), tensorOf(f32({1}), {0.5})},
                                             build);
  EXPECT_THAT(results[0].values, near({2, 0, -2}));
  EXPECT_THAT(results[1].values, near({3, 0, 0}));
}

TEST(RmsNormConstraints, AreReportedByLabel) {
  auto message = [](Type x, Type gamma, NormAttributes attributes) {
    return inferMessage(Op::rmsNorm, {std::move(x), std::move(gamma)}, attributes);
  };
  EXPECT_EQ(message(f32({2, 3}), f32({3}), {1, 1e-5}), "");
  EXPECT_THAT(message(f32({2, 3}), f32({3}), {2, 1e-5}), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({2, 0}), f32({0}), {1, 1e-5}), HasSubstr("(C2)"));
  EXPECT_THAT(message(f32({2, 3}), f32({2}), {1, 1e-5}), HasSubstr("(C3)"));
  EXPECT_THAT(message(f32({2, 3}), f32({3}), {1, -1}), HasSubstr("(C5)"));
  auto gradient = [](Type dy, Type rstd) {
    return inferMessage(Op::rmsNormGrad, {std::move(dy), f32({2, 3}), f32({3}), std::move(rstd)},
                        NormAttributes{1, 1e-5});
  };
  EXPECT_EQ(gradient(f32({2, 3}), f32({2})), "");
  EXPECT_THAT(gradient(f32({3}), f32({2})), HasSubstr("(C6)"));
  EXPECT_THAT(gradient(f32({2, 3}), f32({2, 1})), HasSubstr("(C7)"));
}

TEST(LayerNormConstraints, AreReportedByLabel) {
  auto message = [](Type x, Type gamma, Type beta, NormAttributes attributes) {
    return inferMessage(Op::layerNorm, {std::move(x), std::move(gamma), std::move(beta)}, attributes);
  };
  EXPECT_EQ(message(f32({2, 3}), f32({3}), f32({3}), {1, 1e-5}), "");
  EXPECT_THAT(message(f32({2, 3}), f32({3}), f32({3}), {2, 1e-5}), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({2, 0}), f32({0}), f32({0}), {1, 1e-5}), HasSubstr("(C2)"));
  EXPECT_THAT(message(f32({2, 3}), f32({2}), f32({3}), {1, 1e-5}), HasSubstr("(C3)"));
  EXPECT_THAT(message(f32({2, 3}), f32({3}), f32({1, 3}), {1, 1e-5}), HasSubstr("(C3)"));
  EXPECT_THAT(message(f32({2, 3}), Type(DType::f64, {3}), f32({3}), {1, 1e-5}), HasSubstr("(C3)"));
  Type integers(DType::i64, {3});
  EXPECT_THAT(message(Type(DType::i64, {2, 3}), integers, integers, {1, 1e-5}), HasSubstr("(C4)"));
  EXPECT_THAT(message(f32({2, 3}), f32({3}), f32({3}), {1, -1}), HasSubstr("(C5)"));
}

TEST(LayerNormGradConstraints, AreReportedByLabel) {
  auto message = [](Type dy, Type x, Type mean) {
    return inferMessage(Op::layerNormGrad, {std::move(dy), std::move(x), f32({3}), mean, f32({2})},
                        NormAttributes{1, 1e-5});
  };
  EXPECT_EQ(message(f32({2, 3}), f32({2, 3}), f32({2})), "");
  EXPECT_THAT(message(f32({3}), f32({2, 3}), f32({2})), HasSubstr("(C6)"));
  EXPECT_THAT(message(f32({2, 3}), f32({2, 3}), f32({2, 1})), HasSubstr("(C7)"));
}

} // namespace
} // namespace fsdpc
