// linear_cross_entropy: the cross entropy of a matmul's result, whatever the chunk; derivatives; constraints.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"
#include <cmath>

namespace fsdpc {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }
Type i64(llvm::ArrayRef<int64_t> shape) { return Type(DType::i64, shape); }

LinearLossAttributes attributesWith(bool transposeB, double softcap, double smoothing = 0, int64_t ignoreIndex = -100) {
  LinearLossAttributes attributes;
  attributes.loss = {ignoreIndex, smoothing};
  attributes.transposeB = transposeB;
  attributes.softcap = softcap;
  attributes.chunk = 2;
  return attributes;
}

/// Results of the op; with `first` and `count` some of them.
BuildFunction resultsOf(Op op, LinearLossAttributes attributes, unsigned first, unsigned count) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) {
    Node *node = builder.create(op, inputs, attributes);
    llvm::SmallVector<Value *, 4> values;
    for (unsigned i = first; i < first + count; ++i)
      values.push_back(node->result(i));
    return values;
  };
}

/// The same from a matmul and a cross_entropy: terms and the class of the largest logit.
BuildFunction writtenOut(LinearLossAttributes attributes) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) {
    llvm::SmallVector<Value *, 3> operands = {inputs[0], inputs[1]};
    if (inputs.size() == 4)
      operands.push_back(inputs[3]);
    Value *logits = builder.create(Op::matmul, operands, MatmulAttributes{false, attributes.transposeB})->result();
    if (attributes.softcap > 0) {
      Value *cap = builder.constantLike(logits, attributes.softcap);
      logits = builder.mul(builder.unary(Op::tanh, builder.div(logits, cap)), cap);
    }
    Value *terms = builder.create(Op::crossEntropy, {logits, inputs[2]}, attributes.loss)->result(0);
    Value *largest = builder.create(Op::argMax, {logits}, AxisAttributes{logits->type().rank() - 1})->result();
    return llvm::SmallVector<Value *, 4>{terms, largest};
  };
}

/// hidden [2,3,4], weight for 5 classes, labels of which one is ignored, and perhaps a bias.
std::vector<GradientInput> inputsFor(const LinearLossAttributes &attributes, bool hasBias) {
  std::vector<GradientInput> inputs = {{f32({2, 3, 4}), -1, 1},
                                       {attributes.transposeB ? f32({5, 4}) : f32({4, 5}), -1, 1},
                                       {i64({2, 3}), 0, 1, {0, 4, -100, 2, 2, 1}}};
  if (attributes.loss.ignoreIndex >= 0)
    inputs[2].values = {0, 4, 1, 2, 2, 1};
  if (hasBias)
    inputs.push_back({f32({5}), -1, 1});
  return inputs;
}

template <class Body>
void forEachForm(const Body &body) {
  for (bool transposeB : {false, true})
    for (double softcap : {0.0, 1.5})
      for (bool hasBias : {false, true}) {
        body(attributesWith(transposeB, softcap), hasBias);
        body(attributesWith(transposeB, softcap, 0.1, 2), hasBias);
      }
}

OP_TEST(linearCrossEntropy, IsTheCrossEntropyOfTheMatmulsResult) {
  forEachForm([](const LinearLossAttributes &attributes, bool hasBias) {
    std::vector<HostTensor> inputs;
    for (const GradientInput &input : inputsFor(attributes, hasBias)) {
      HostTensor tensor(input.type);
      for (size_t i = 0; i < tensor.values.size(); ++i)
        tensor.values[i] =
            input.values.empty() ? std::sin(1.7 * static_cast<double>(i + inputs.size())) : input.values[i];
      inputs.push_back(tensor);
    }
    std::vector<HostTensor> expected = valuesOf(inputs, writtenOut(attributes));
    std::vector<HostTensor> results = valuesOf(inputs, resultsOf(Op::linearCrossEntropy, attributes, 0, 2));
    EXPECT_THAT(results[0].values, Pointwise(DoubleNear(1e-12), expected[0].values));
    EXPECT_EQ(results[1].values, expected[1].values);
  });
}

OP_TEST(linearCrossEntropy, HasTheDerivativesOfHiddenWeightAndBias) {
  forEachForm([](const LinearLossAttributes &attributes, bool hasBias) {
    checkGradients(
        {.inputs = inputsFor(attributes, hasBias), .build = resultsOf(Op::linearCrossEntropy, attributes, 0, 1)});
  });
}

OP_TEST(linearCrossEntropy, RoundsLogitsToTheTypeOfItsOperands) {
  // 1 + 2^-9 is not a bf16, so the logits of both classes are 1.
  const Type row(DType::bf16, {1, 2}), weight(DType::bf16, {2, 2});
  std::vector<HostTensor> inputs = {tensorOf(row, {1, 0x1p-9}), tensorOf(weight, {1, 1, 1, 0}),
                                    tensorOf(i64({1}), {0})};
  std::vector<HostTensor> results = valuesOf(inputs, resultsOf(Op::linearCrossEntropy, attributesWith(false, 0), 0, 2));
  EXPECT_THAT(results[0].values, Pointwise(DoubleNear(1e-12), std::vector<double>{std::log(2)}));
  EXPECT_EQ(results[1].values, (std::vector<double>{0}));
}

OP_TEST(linearCrossEntropyGrad, ReturnsTheTermsAndNothingForAFrozenWeight) {
  LinearLossAttributes attributes = attributesWith(true, 0);
  std::vector<HostTensor> operands = {tensorOf(f32({1, 2}), {1, 2}), tensorOf(f32({2, 2}), {3, 4, 5, 6}),
                                      tensorOf(i64({1}), {1})};
  std::vector<HostTensor> terms = valuesOf(operands, resultsOf(Op::linearCrossEntropy, attributes, 0, 1));
  operands.insert(operands.begin(), tensorOf(f32({1}), {2}));
  EXPECT_EQ(valuesOf(operands, resultsOf(Op::linearCrossEntropyGrad, attributes, 0, 1))[0].values, terms[0].values);
  attributes.frozenWeight = true;
  std::vector<HostTensor> frozen = valuesOf(operands, resultsOf(Op::linearCrossEntropyGrad, attributes, 0, 2));
  const double p = 1 / (1 + std::exp(6)); // logits 11 and 17
  EXPECT_THAT(frozen[1].values, Pointwise(DoubleNear(1e-12), std::vector<double>{2 * p * (3 - 5), 2 * p * (4 - 6)}));
}

TEST(LinearLossConstraints, AreReportedByLabel) {
  auto message = [](std::vector<Type> operands, LinearLossAttributes attributes) {
    return inferMessage(Op::linearCrossEntropy, operands, attributes);
  };
  const LinearLossAttributes plain = attributesWith(false, 0);
  EXPECT_EQ(message({f32({2, 3, 4}), f32({4, 5}), i64({2, 3}), f32({5})}, plain), "");
  EXPECT_THAT(message({f32({4}), f32({4, 5}), i64({})}, plain), HasSubstr("(C1)"));
  EXPECT_THAT(message({f32({3, 4}), f32({5, 4}), i64({3})}, plain), HasSubstr("(C1)"));
  EXPECT_THAT(message({f32({3, 4}), Type(DType::bf16, {4, 5}), i64({3})}, plain), HasSubstr("(C1)"));
  EXPECT_THAT(message({f32({3, 4}), f32({4, 5}), i64({4})}, plain), HasSubstr("(C2)"));
  EXPECT_THAT(message({f32({3, 4}), f32({4, 5}), i64({3})}, attributesWith(false, 0, 1.5)), HasSubstr("(C3)"));
  EXPECT_THAT(message({f32({3, 4}), f32({4, 5}), i64({3}), f32({4})}, plain), HasSubstr("(C4)"));
  EXPECT_THAT(message({f32({3, 4}), f32({4, 5}), i64({3})}, attributesWith(false, -1)), HasSubstr("(C5)"));
  EXPECT_THAT(inferMessage(Op::linearCrossEntropyGrad, {f32({4}), f32({3, 4}), f32({4, 5}), i64({3})}, plain),
              HasSubstr("(C6)"));
}

} // namespace
} // namespace fsdpc
