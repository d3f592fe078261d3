// convolution and its derivatives: small tables, a plain padded formula, finite differences, constraints.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"

namespace fsdpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }

/// Strides and dilations 1, no pads, on `axes` spatial axes.
ConvolutionAttributes plain(size_t axes) {
  ConvolutionAttributes attributes;
  attributes.strides.assign(axes, 1);
  attributes.dilations.assign(axes, 1);
  attributes.padsBefore.assign(axes, 0);
  attributes.padsAfter.assign(axes, 0);
  return attributes;
}

BuildFunction convolve(ConvolutionAttributes attributes) {
  return [attributes](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::convolution, inputs, attributes)->result()};
  };
}

std::vector<double> convolved(const std::vector<HostTensor> &inputs, ConvolutionAttributes attributes) {
  return valuesOf(inputs, convolve(std::move(attributes)))[0].values;
}

OP_TEST(convolution, AddsUpWindowTimesKernelPlusBiasWithoutFlippingTheKernel) {
  HostTensor x = tensorOf(f32({1, 1, 3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  HostTensor w = tensorOf(f32({1, 1, 2, 2}), {1, 2, 3, 4});
  EXPECT_THAT(convolved({x, w, tensorOf(f32({1}), {10})}, plain(2)), ElementsAre(47, 57, 77, 87));
  EXPECT_THAT(convolved({x, w}, plain(2)), ElementsAre(37, 47, 67, 77));
}

OP_TEST(convolution, PadsEachSideByItsOwnAmountAndSkipsByTheStride) {
  ConvolutionAttributes attributes = plain(1);
  attributes.strides = {2};
  attributes.padsBefore = {1};
  HostTensor x = tensorOf(f32({1, 1, 4}), {1, 2, 3, 4});
  HostTensor w = tensorOf(f32({1, 1, 3}), {1, 10, 100});
  EXPECT_THAT(convolved({x, w}, attributes), ElementsAre(210, 432));
}

OP_TEST(convolution, SpreadsTheKernelByTheDilation) {
  ConvolutionAttributes attributes = plain(1);
  attributes.dilations = {3};
  HostTensor x = tensorOf(f32({1, 1, 5}), {1, 2, 3, 4, 5});
  EXPECT_THAT(convolved({x, tensorOf(f32({1, 1, 2}), {1, 10})}, attributes), ElementsAre(41, 52));
}

OP_TEST(convolution, KeepsGroupsApart) {
  ConvolutionAttributes attributes = plain(1);
  attributes.groups = 2;
  HostTensor x = tensorOf(f32({1, 4, 1}), {1, 2, 3, 4});
  HostTensor w = tensorOf(f32({2, 2, 1}), {1, 10, 100, 1000});
  EXPECT_THAT(convolved({x, w}, attributes), ElementsAre(21, 4300));
}

/// Element i of test data without structure.
double sample(int64_t i) { return static_cast<double>((i * 37 + 11) % 23 - 11) / 7; }

HostTensor sampled(Type type) {
  HostTensor tensor(std::move(type));
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = sample(static_cast<int64_t>(i));
  return tensor;
}

/// The textbook formula for x [2, 4, 5, 6], w [6, 2, 2, 3], groups 2, strides (2, 1), dilations (1, 2), pads (1, 0) and
/// (0, 2).
double referenceAt(const HostTensor &x, const HostTensor &w, int64_t n, int64_t m, int64_t oh, int64_t ow) {
  double sum = 0;
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t kh = 0; kh < 2; ++kh)
      for (int64_t kw = 0; kw < 3; ++kw) {
        int64_t ih = 2 * oh + kh - 1, iw = ow + 2 * kw;
        if (ih < 0 || ih >= 5 || iw >= 6)
          continue;
        int64_t channel = (m < 3 ? 0 : 2) + c;
        sum += x.values[((n * 4 + channel) * 5 + ih) * 6 + iw] * w.values[((m * 2 + c) * 2 + kh) * 3 + kw];
      }
  return sum;
}

ConvolutionAttributes mixedAttributes() {
  ConvolutionAttributes attributes = plain(2);
  attributes.groups = 2;
  attributes.strides = {2, 1};
  attributes.dilations = {1, 2};
  attributes.padsBefore = {1, 0};
  attributes.padsAfter = {0, 2};
  return attributes;
}

OP_TEST(convolution, AgreesWithTheTextbookFormulaWhenEverythingIsMixed) {
  HostTensor x = sampled(f32({2, 4, 5, 6})), w = sampled(f32({6, 2, 2, 3}));
  HostTensor y = valuesOf({x, w}, convolve(mixedAttributes()))[0];
  ASSERT_EQ(y.type, f32({2, 6, 3, 4}));
  for (int64_t i = 0; i < y.type.elements(); ++i)
    EXPECT_NEAR(y.values[i], referenceAt(x, w, i / 72, i / 12 % 6, i / 4 % 3, i % 4), 1e-12) << "element " << i;
}

OP_TEST(convolution, HasTheDerivativeOfEveryOperandInOneTwoAndThreeDimensions) {
  ConvolutionAttributes line = plain(1);
  line.padsAfter = {1};
  checkGradients({.inputs = {{f32({2, 3, 5})}, {f32({1, 3, 2})}, {f32({1})}}, .build = convolve(line)});
  checkGradients(
      {.inputs = {{f32({2, 4, 5, 6})}, {f32({6, 2, 2, 3})}, {f32({6})}}, .build = convolve(mixedAttributes())});
  ConvolutionAttributes solid = plain(3);
  solid.strides = {1, 2, 1};
  solid.padsBefore = {0, 1, 0};
  checkGradients({.inputs = {{f32({1, 2, 3, 3, 2})}, {f32({2, 2, 2, 1, 2})}}, .build = convolve(solid)});
}

OP_TEST(convolution, HasTheDerivativeOfDepthwiseGroupsAndOfSkippedInput) {
  ConvolutionAttributes attributes = plain(1);
  attributes.groups = 3;
  attributes.strides = {3};
  checkGradients({.inputs = {{f32({1, 3, 5})}, {f32({3, 1, 2})}}, .build = convolve(attributes)});
  checkGradients(
      {.inputs = {{Type(f32({1, 3, 5})), -1, 1, {}, false}, {f32({3, 1, 2})}}, .build = convolve(attributes)});
}

OP_TEST(convolution, OfAnEmptyBatchIsEmptyAndItsWeightGradientIsZero) {
  std::vector<HostTensor> inputs = {HostTensor(f32({0, 1, 3})), tensorOf(f32({1, 1, 2}), {1, 2})};
  EXPECT_EQ(valuesOf(inputs, convolve(plain(1)))[0].type, f32({0, 1, 2}));
  EXPECT_THAT(gradientsOf(inputs, convolve(plain(1)))[1].values, ElementsAre(0, 0));
}

TEST(ConvolutionConstraints, AreReportedByLabel) {
  auto message = [](Type x, Type w, const ConvolutionAttributes &attributes) {
    return inferMessage(Op::convolution, {std::move(x), std::move(w)}, attributes);
  };
  EXPECT_EQ(message(f32({1, 1, 3}), f32({1, 1, 2}), plain(1)), "");
  EXPECT_THAT(message(f32({1, 1, 3}), f32({1, 1, 2, 2}), plain(1)), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({1, 1}), f32({1, 1}), plain(0)), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({1, 1, 1, 1, 1, 1}), f32({1, 1, 1, 1, 1, 1}), plain(4)), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({1, 1, 3}), f32({1, 1, 2}), plain(2)), HasSubstr("(C1)"));
  ConvolutionAttributes broken = plain(1);
  broken.strides = {0};
  EXPECT_THAT(message(f32({1, 1, 3}), f32({1, 1, 2}), broken), HasSubstr("(C2)"));
  broken = plain(1);
  broken.padsBefore = {-1};
  EXPECT_THAT(message(f32({1, 1, 3}), f32({1, 1, 2}), broken), HasSubstr("(C2)"));
  broken = plain(1);
  broken.dilations = {int64_t(1) << 40};
  EXPECT_THAT(message(f32({1, 1, 3}), f32({1, 1, 2}), broken), HasSubstr("(C2)"));
  EXPECT_THAT(message(f32({1, 1, 3}), f32({1, 1, 4}), plain(1)), HasSubstr("(C3)"));
  EXPECT_THAT(message(f32({1, 2, 3}), f32({1, 1, 2}), plain(1)), HasSubstr("(C4)"));
  broken = plain(1);
  broken.groups = 0;
  EXPECT_THAT(message(f32({1, 2, 3}), f32({1, 1, 2}), broken), HasSubstr("(C4)"));
  EXPECT_THAT(message(f32({1, 1, 3}), Type(DType::f64, {1, 1, 2}), plain(1)), HasSubstr("(C6)"));
  int64_t large = int64_t(1) << 40;
  EXPECT_THAT(message(f32({large, 1, 3}), f32({large, 1, 2}), plain(1)), HasSubstr("(C8)"));
}

TEST(ConvolutionConstraints, WantOneBiasPerOutputChannel) {
  std::array<Type, 3> operands = {f32({1, 1, 3}), f32({2, 1, 2}), f32({1})};
  EXPECT_THAT(inferMessage(Op::convolution, operands, plain(1)), HasSubstr("(C5)"));
}

OP_TEST(convolutionGradInput, SendsEveryCotangentBackThroughTheKernel) {
  ConvolutionAttributes attributes = plain(1);
  attributes.shape = {1, 1, 3};
  auto build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::convolutionGradInput, inputs, attributes)->result()};
  };
  std::vector<HostTensor> inputs = {tensorOf(f32({1, 1, 2}), {3, 5}), tensorOf(f32({1, 1, 2}), {1, 10})};
  EXPECT_THAT(valuesOf(inputs, build)[0].values, ElementsAre(3, 35, 50));
}

TEST(ConvolutionGradInput, HasTheDerivativesOfATransposedConvolution) {
  ConvolutionAttributes attributes = plain(2);
  attributes.strides = {2, 1};
  attributes.groups = 2;
  attributes.shape = {2, 4, 4, 3};
  auto build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::convolutionGradInput, inputs, attributes)->result()};
  };
  checkGradients({.inputs = {{f32({2, 2, 2, 2})}, {f32({2, 2, 2, 2})}}, .build = build});
}

TEST(ConvolutionGradInputConstraints, AreReportedByLabel) {
  ConvolutionAttributes attributes = plain(1);
  attributes.shape = {1, 1, 4};
  EXPECT_THAT(inferMessage(Op::convolutionGradInput, {f32({1, 1, 2}), f32({1, 1, 2})}, attributes), HasSubstr("(C7)"));
  attributes.shape = {1, 2, 3};
  EXPECT_THAT(inferMessage(Op::convolutionGradInput, {f32({1, 1, 2}), f32({1, 1, 2})}, attributes), HasSubstr("(C4)"));
  attributes.shape = {1, 1, -3};
  EXPECT_THAT(inferMessage(Op::convolutionGradInput, {f32({1, 1, 2}), f32({1, 1, 2})}, attributes), HasSubstr("(C8)"));
}

OP_TEST(convolutionGradWeight, AddsUpInputTimesCotangentOverTheBatch) {
  ConvolutionAttributes attributes = plain(1);
  attributes.shape = {1, 1, 2};
  auto build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::convolutionGradWeight, inputs, attributes)->result()};
  };
  std::vector<HostTensor> inputs = {tensorOf(f32({2, 1, 3}), {1, 2, 3, 4, 5, 6}),
                                    tensorOf(f32({2, 1, 2}), {1, 10, 100, 1000})};
  EXPECT_THAT(valuesOf(inputs, build)[0].values, ElementsAre(1 + 20 + 400 + 5000, 2 + 30 + 500 + 6000));
}

TEST(ConvolutionGradWeightConstraints, AreReportedByLabel) {
  ConvolutionAttributes attributes = plain(1);
  attributes.shape = {1, 1, 3};
  EXPECT_THAT(inferMessage(Op::convolutionGradWeight, {f32({1, 1, 3}), f32({1, 1, 2})}, attributes), HasSubstr("(C7)"));
  attributes.shape = {1, 1};
  EXPECT_THAT(inferMessage(Op::convolutionGradWeight, {f32({1, 1, 3}), f32({1, 1, 2})}, attributes), HasSubstr("(C1)"));
}

OP_TEST(convolution, CostsTwoOperationsPerProduct) {
  Module module;
  Function *function = module.addFunction(FunctionKind::forward);
  Builder builder(*function);
  Value *x = function->addArgument(ArgumentKind::input, "x", f32({2, 4, 5, 6}));
  Value *w = function->addArgument(ArgumentKind::input, "w", f32({6, 2, 2, 3}));
  Node *node = builder.create(Op::convolution, {x, w}, mixedAttributes());
  recordExercisedOps(module);
  EXPECT_EQ(infoOf(*node).cost(*node).flops, 2.0 * (2 * 6 * 3 * 4) * (2 * 2 * 3));
}

} // namespace
} // namespace fsdpc
