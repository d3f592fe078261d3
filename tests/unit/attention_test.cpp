// attention: values by hand, against its decomposed form, derivatives in both layouts and with every kind of mask.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"
#include <cmath>
#include <limits>

namespace fsdpc {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

constexpr double infinity = std::numeric_limits<double>::infinity();

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }

auto near(std::vector<double> expected) { return Pointwise(DoubleNear(1e-12), std::move(expected)); }

/// Returns the first `results` results. Only o may have a cotangent.
BuildFunction attend(AttentionAttributes attributes, unsigned results = 1) {
  return [attributes, results](Builder &builder, llvm::ArrayRef<Value *> inputs) {
    Node *node = builder.create(Op::attention, inputs, attributes);
    llvm::SmallVector<Value *, 4> values;
    for (unsigned i = 0; i < results; ++i)
      values.push_back(node->result(i));
    return values;
  };
}

OP_TEST(attention, AveragesValuesByTheExponentialOfScaledScores) {
  HostTensor q = tensorOf(f32({1, 1, 1, 1}), {2}), k = tensorOf(f32({1, 1, 2, 1}), {0, std::log(3)}),
             v = tensorOf(f32({1, 1, 2, 1}), {8, 16});
  std::vector<HostTensor> results = valuesOf({q, k, v}, attend({.scale = 0.5}, 2));
  EXPECT_THAT(results[0].values, near({0.25 * 8 + 0.75 * 16}));
  EXPECT_EQ(results[1].type, f32({1, 1, 1}));
  EXPECT_THAT(results[1].values, near({std::log(4)}));
}

OP_TEST(attention, CausalShowsQueryIKeysUpToIFromTheUpperLeft) {
  HostTensor q(f32({1, 1, 2, 1})), k(f32({1, 1, 3, 1})), v = tensorOf(f32({1, 1, 3, 1}), {2, 4, 90});
  std::vector<HostTensor> wide = valuesOf({q, k, v}, attend({.causal = true}, 2));
  EXPECT_THAT(wide[0].values, near({2, 3}));
  EXPECT_THAT(wide[1].values, near({0, std::log(2)}));
  HostTensor longQ(f32({1, 1, 4, 1}));
  EXPECT_THAT(valuesOf({longQ, k, v}, attend({.causal = true}))[0].values, near({2, 3, 32, 32}));
}

OP_TEST(attention, WindowShowsKeysLessThanItsSizeAwayOnBothSidesOrBefore) {
  HostTensor q(f32({1, 1, 4, 1})), k(f32({1, 1, 4, 1})), v = tensorOf(f32({1, 1, 4, 1}), {2, 4, 12, 32});
  EXPECT_THAT(valuesOf({q, k, v}, attend({.window = 2}))[0].values, near({3, 6, 16, 22}));
  EXPECT_THAT(valuesOf({q, k, v}, attend({.causal = true, .window = 2}))[0].values, near({2, 3, 8, 22}));
  EXPECT_THAT(valuesOf({q, k, v}, attend({.causal = true, .window = 1}))[0].values, near({2, 4, 12, 32}));
  EXPECT_THAT(valuesOf({q, k, v}, attend({.window = 9}))[0].values, near({12.5, 12.5, 12.5, 12.5}));
}

OP_TEST(attention, DocumentsShowKeysOfTheQuerysOwnInAnyOrder) {
  HostTensor q(f32({2, 1, 4, 1})), k(f32({2, 1, 4, 1})), v = tensorOf(f32({2, 1, 4, 1}), {2, 4, 12, 32, 2, 4, 12, 32});
  HostTensor documents = tensorOf(Type(DType::i64, {2, 4}), {7, 7, 7, 7, 5, 1, 5, 1});
  EXPECT_THAT(valuesOf({q, k, v, documents}, attend({.documents = true}))[0].values,
              near({12.5, 12.5, 12.5, 12.5, 7, 18, 7, 18}));
  EXPECT_THAT(valuesOf({q, k, v, documents}, attend({.causal = true, .documents = true}))[0].values,
              near({2, 3, 6, 12.5, 2, 4, 7, 18}));
  EXPECT_THAT(valuesOf({q, k, v, documents}, attend({.causal = true, .window = 2, .documents = true}))[0].values,
              near({2, 3, 8, 22, 2, 4, 12, 32}));
  HostTensor shared = tensorOf(Type(DType::i64, {1, 4}), {0, 0, 3, 3});
  EXPECT_THAT(valuesOf({q, k, v, shared}, attend({.documents = true}))[0].values, near({3, 3, 22, 22, 3, 3, 22, 22}));
}

OP_TEST(attention, OfAQueryWhoseDocumentIsAllMaskedSeesOthersTooIfTheirNumberIsFinite) {
  const double least = std::numeric_limits<float>::lowest();
  HostTensor q(f32({1, 1, 3, 1})), k(f32({1, 1, 3, 1})), v = tensorOf(f32({1, 1, 3, 1}), {3, 6, 12});
  HostTensor mask = tensorOf(f32({3}), {least, 0, 0}), documents = tensorOf(Type(DType::i64, {1, 3}), {0, 1, 1});
  EXPECT_THAT(valuesOf({q, k, v, mask, documents}, attend({.documents = true, .hidden = least}))[0].values,
              near({7, 9, 9}));
  EXPECT_THAT(valuesOf({q, k, v, mask, documents}, attend({.documents = true}))[0].values, near({3, 9, 9}));
}

OP_TEST(attention, OfAQueryWhoseKeysAreAllMaskedSeesHiddenOnesTooIfTheirNumberIsFinite) {
  const double least = std::numeric_limits<float>::lowest();
  HostTensor q(f32({1, 1, 3, 1})), k(f32({1, 1, 3, 1})), v = tensorOf(f32({1, 1, 3, 1}), {3, 6, 12});
  HostTensor mask = tensorOf(f32({3}), {least, 0, 0});
  EXPECT_THAT(valuesOf({q, k, v, mask}, attend({.causal = true, .hidden = least}))[0].values, near({7, 6, 9}));
  EXPECT_THAT(valuesOf({q, k, v, mask}, attend({.causal = true}))[0].values, near({3, 6, 9}));
}

OP_TEST(attention, OfAQueryThatSeesNoKeyIsZeroAndSoIsItsDerivative) {
  HostTensor q(f32({1, 1, 2, 1}), 1), k(f32({1, 1, 2, 1}), 1), v = tensorOf(f32({1, 1, 2, 1}), {2, 4});
  HostTensor mask = tensorOf(f32({2, 2}), {-infinity, -infinity, 0, -infinity});
  std::vector<HostTensor> results = valuesOf({q, k, v, mask}, attend({}, 2));
  EXPECT_THAT(results[0].values, near({0, 2}));
  EXPECT_EQ(results[1].values[0], -infinity);
  EXPECT_NEAR(results[1].values[1], 1, 1e-12);
  BuildFunction build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *constantMask = builder.constant(mask.type, denseOf(mask));
    return {builder.create(Op::attention, {inputs[0], inputs[1], inputs[2], constantMask}, AttentionAttributes{})
                ->result()};
  };
  std::vector<HostTensor> gradients = gradientsOf({q, k, v}, build);
  EXPECT_THAT(gradients[0].values, near({0, 0}));
  EXPECT_THAT(gradients[1].values, near({0, 0}));
  EXPECT_THAT(gradients[2].values, near({1, 0}));
}

OP_TEST(attention, OfAQueryWhoseKeysAreAllHiddenByTheLeastFloatSharesItsDerivativeAmongThem) {
  const double least = std::numeric_limits<float>::lowest();
  HostTensor q(f32({1, 1, 1, 1}), 1), k = tensorOf(f32({1, 1, 2, 1}), {1, 3}), v = tensorOf(f32({1, 1, 2, 1}), {2, 4});
  HostTensor mask = tensorOf(f32({1, 2}), {least, least});
  EXPECT_THAT(valuesOf({q, k, v, mask}, attend({}))[0].values, near({3}));
  BuildFunction build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *constantMask = builder.constant(mask.type, denseOf(mask));
    return {builder.create(Op::attention, {inputs[0], inputs[1], inputs[2], constantMask}, AttentionAttributes{})
                ->result()};
  };
  std::vector<HostTensor> gradients = gradientsOf({q, k, v}, build);
  EXPECT_THAT(gradients[0].values, near({1})); // ds = (-1/2, 1/2)
  EXPECT_THAT(gradients[1].values, near({-0.5, 0.5}));
  EXPECT_THAT(gradients[2].values, near({0.5, 0.5}));
}

/// The same computation built from matmul, add and softmax, on [B,H,S,D].
BuildFunction decomposed(double scale) {
  return [scale](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *scores = builder.matmul(inputs[0], inputs[1], false, true);
    scores = builder.mul(scores, builder.constantLike(scores, scale));
    scores = builder.add(scores, builder.broadcast(inputs[3], scores->type().shape()));
    Value *p = builder.create(Op::softmax, {scores}, AxisAttributes{3})->result();
    return {builder.matmul(p, inputs[2])};
  };
}

HostTensor sampled(Type type, int64_t seed) {
  HostTensor tensor(std::move(type));
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = static_cast<double>((static_cast<int64_t>(i) * 31 + seed) % 17 - 8) / 9;
  return tensor;
}

OP_TEST(attention, EqualsItsDecomposedFormForEveryMaskShape) {
  std::vector<HostTensor> inputs = {
      sampled(f32({2, 3, 4, 2}), 1), sampled(f32({2, 3, 5, 2}), 2), sampled(f32({2, 3, 5, 2}), 3), {}};
  for (const Shape &shape : {Shape{4, 5}, Shape{5}, Shape{2, 1, 1, 5}, Shape{3, 4, 1}, Shape{2, 3, 4, 5}, Shape{}}) {
    inputs[3] = sampled(f32(shape), 4);
    EXPECT_THAT(valuesOf(inputs, attend({.scale = 0.75}))[0].values,
                near(valuesOf(inputs, decomposed(0.75))[0].values));
  }
}

OP_TEST(attention, InSequenceFirstLayoutIsTheTransposedAttention) {
  HostTensor q = sampled(f32({2, 3, 4, 2}), 1), k = sampled(f32({2, 3, 5, 2}), 2), v = sampled(f32({2, 3, 5, 2}), 3);
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    llvm::SmallVector<Value *, 3> swapped;
    for (Value *input : inputs)
      swapped.push_back(builder.transpose(input, {0, 2, 1, 3}));
    AttentionAttributes attributes{.scale = 0.7, .causal = true, .sequenceFirst = true};
    Node *node = builder.create(Op::attention, swapped, attributes);
    return {builder.transpose(node->result(0), {0, 2, 1, 3}), node->result(1)};
  };
  std::vector<HostTensor> expected = valuesOf({q, k, v}, attend({.scale = 0.7, .causal = true}, 2));
  std::vector<HostTensor> results = valuesOf({q, k, v}, build);
  EXPECT_THAT(results[0].values, near(expected[0].values));
  EXPECT_THAT(results[1].values, near(expected[1].values));
}

OP_TEST(attention, HasTheDerivativeInBothLayouts) {
  for (bool causal : {false, true}) {
    AttentionAttributes attributes{.scale = 0.6, .causal = causal};
    checkGradients(
        {.inputs = {{f32({2, 3, 4, 2})}, {f32({2, 3, 5, 2})}, {f32({2, 3, 5, 2})}}, .build = attend(attributes)});
    checkGradients(
        {.inputs = {{f32({1, 1, 3, 3})}, {f32({1, 1, 1, 3})}, {f32({1, 1, 1, 3})}}, .build = attend(attributes)});
    attributes.sequenceFirst = true;
    checkGradients(
        {.inputs = {{f32({2, 3, 2, 3})}, {f32({2, 5, 2, 3})}, {f32({2, 5, 2, 3})}}, .build = attend(attributes)});
  }
}

/// k or v with every head repeated `times` times consecutively.
Value *repeated(Builder &builder, Value *x, int64_t headAxis, int64_t times) {
  Shape shape(x->type().shape());
  shape.insert(shape.begin() + headAxis + 1, 1);
  Value *apart = builder.reshape(x, shape);
  shape[headAxis + 1] = times;
  Value *copies = builder.broadcast(apart, shape);
  shape.erase(shape.begin() + headAxis + 1);
  shape[headAxis] *= times;
  return builder.reshape(copies, shape);
}

OP_TEST(attention, OfGroupedQueriesEqualsAttentionOnRepeatedHeads) {
  for (bool sequenceFirst : {false, true}) {
    AttentionAttributes attributes{.scale = 0.7, .causal = true, .sequenceFirst = sequenceFirst};
    Type q = f32(sequenceFirst ? Shape{2, 4, 6, 3} : Shape{2, 6, 4, 3});
    Type k = f32(sequenceFirst ? Shape{2, 5, 2, 3} : Shape{2, 2, 5, 3});
    auto build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
      int64_t axis = sequenceFirst ? 2 : 1;
      Node *node = builder.create(
          Op::attention, {inputs[0], repeated(builder, inputs[1], axis, 3), repeated(builder, inputs[2], axis, 3)},
          attributes);
      return {node->result(0), node->result(1)};
    };
    std::vector<HostTensor> inputs = {sampled(q, 1), sampled(k, 2), sampled(k, 3)};
    std::vector<HostTensor> expected = valuesOf(inputs, build), results = valuesOf(inputs, attend(attributes, 2));
    EXPECT_THAT(results[0].values, near(expected[0].values));
    EXPECT_THAT(results[1].values, near(expected[1].values));
  }
}

OP_TEST(attention, OfGroupedQueriesHasTheDerivativeInBothLayouts) {
  GradientInput mask{f32({4, 3, 5}), -1, 1, {}, false};
  checkGradients({.inputs = {{f32({2, 4, 3, 2})}, {f32({2, 2, 5, 2})}, {f32({2, 2, 5, 2})}, mask},
                  .build = attend({.scale = 0.6})});
  checkGradients({.inputs = {{f32({2, 4, 3, 2})}, {f32({2, 4, 1, 2})}, {f32({2, 4, 1, 2})}},
                  .build = attend({.scale = 0.6, .causal = true, .sequenceFirst = true})});
}

OP_TEST(attention, OfCappedScoresEqualsItsDecomposedFormAndHasTheDerivative) {
  const double cap = 1.5;
  auto decomposed = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *scores = builder.matmul(inputs[0], inputs[1], false, true);
    scores = builder.unary(Op::tanh, builder.mul(scores, builder.constantLike(scores, 0.75 / cap)));
    scores = builder.mul(scores, builder.constantLike(scores, cap));
    Value *p = builder.create(Op::softmax, {scores}, AxisAttributes{3})->result();
    return {builder.matmul(p, inputs[2])};
  };
  std::vector<HostTensor> inputs = {sampled(f32({2, 3, 4, 2}), 1), sampled(f32({2, 3, 5, 2}), 2),
                                    sampled(f32({2, 3, 5, 2}), 3)};
  EXPECT_THAT(valuesOf(inputs, attend({.scale = 0.75, .softcap = cap}))[0].values,
              near(valuesOf(inputs, decomposed)[0].values));
  checkGradients({.inputs = {{f32({2, 1, 3, 2})}, {f32({2, 1, 3, 2})}, {f32({2, 1, 3, 2})}},
                  .build = attend({.scale = 0.6, .causal = true, .window = 2, .softcap = cap})});
}

OP_TEST(attention, HasTheDerivativeUnderAMask) {
  GradientInput mask{f32({3, 1}), -1, 1, {0, -infinity, 0.5}, false};
  GradientInput rows{f32({2, 1, 3, 3}), -1, 1, {}, false};
  for (const GradientInput &input : {mask, rows})
    checkGradients({.inputs = {{f32({2, 1, 3, 2})}, {f32({2, 1, 3, 2})}, {f32({2, 1, 3, 2})}, input},
                    .build = attend({.scale = 0.6})});
}

OP_TEST(attention, UnderTwoMasksIsThatUnderTheirSum) {
  Type q = f32({2, 2, 3, 2}), k = f32({2, 1, 3, 2}), ofQueries = f32({2, 2, 3, 1}), ofKeys = f32({2, 1, 1, 3});
  auto ofSum = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    const Shape scores = {2, 2, 3, 3};
    Value *sum = builder.add(builder.broadcast(inputs[3], scores), builder.broadcast(inputs[4], scores));
    return {builder.create(Op::attention, {inputs[0], inputs[1], inputs[2], sum}, AttentionAttributes{.causal = true})
                ->result()};
  };
  std::vector<HostTensor> inputs = {sampled(q, 1), sampled(k, 2), sampled(k, 3), sampled(ofQueries, 4),
                                    sampled(ofKeys, 5)};
  EXPECT_THAT(valuesOf(inputs, attend({.causal = true}))[0].values, near(valuesOf(inputs, ofSum)[0].values));
  GradientInput first{ofQueries, -1, 1, {}, false}, second{ofKeys, -1, 1, {}, false};
  GradientInput documents{Type(DType::i64, {2, 3}), -1, 1, {2, 2, 5, 0, 1, 1}, false};
  checkGradients({.inputs = {{q}, {k}, {k}, first, second}, .build = attend({.scale = 0.6})});
  checkGradients({.inputs = {{q}, {k}, {k}, first, second, documents},
                  .build = attend({.scale = 0.6, .documents = true, .hidden = -1e4, .masksHidden = true})});
}

OP_TEST(attention, HasTheDerivativeWithinDocuments) {
  GradientInput documents{Type(DType::i64, {2, 4}), -1, 1, {2, 2, 5, 5, 1, 0, 1, 0}, false};
  GradientInput mask{f32({2, 1, 1, 4}), -1, 1, {}, false};
  for (bool causal : {false, true})
    checkGradients({.inputs = {{f32({2, 2, 4, 2})}, {f32({2, 1, 4, 2})}, {f32({2, 1, 4, 2})}, documents},
                    .build = attend({.scale = 0.6, .causal = causal, .documents = true})});
  checkGradients({.inputs = {{f32({2, 1, 4, 2})}, {f32({2, 1, 4, 2})}, {f32({2, 1, 4, 2})}, mask, documents},
                  .build = attend({.scale = 0.6, .window = 3, .documents = true, .hidden = -1e4})});
}

OP_TEST(attention, HasTheDerivativeOfSomeOperandsAndOfOneTensorUsedThrice) {
  GradientInput fixed{f32({1, 2, 3, 2}), -1, 1, {}, false}, free{f32({1, 2, 3, 2})};
  checkGradients({.inputs = {fixed, fixed, free}, .build = attend({})});
  checkGradients({.inputs = {free, fixed, fixed}, .build = attend({})});
  auto selfAttend = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::attention, {inputs[0], inputs[0], inputs[0]}, AttentionAttributes{})->result()};
  };
  checkGradients({.inputs = {free}, .build = selfAttend});
}

OP_TEST(attentionGrad, OfTwoEqualKeysSplitsTheCotangent) {
  // p = (1/2, 1/2), o = 3, D = do * o = 6, do v = (4, 8), ds = p * (do v - D) = (-1, 1).
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Node *node = builder.create(Op::attentionGrad, inputs, AttentionAttributes{.scale = 2});
    return {node->result(0), node->result(1), node->result(2)};
  };
  Type one = f32({1, 1, 1, 1}), two = f32({1, 1, 2, 1});
  std::vector<HostTensor> results =
      valuesOf({tensorOf(one, {2}), tensorOf(one, {3}), tensorOf(two, {5, 5}), tensorOf(two, {2, 4}),
                tensorOf(one, {3}), tensorOf(f32({1, 1, 1}), {30 + std::log(2)})},
               build);
  EXPECT_THAT(results[0].values, near({0}));
  EXPECT_THAT(results[1].values, near({-6, 6}));
  EXPECT_THAT(results[2].values, near({1, 1}));
}

TEST(AttentionConstraints, AreReportedByLabel) {
  auto message = [](Type q, Type k, Type v, AttentionAttributes attributes = {}) {
    return inferMessage(Op::attention, {std::move(q), std::move(k), std::move(v)}, attributes);
  };
  Type good = f32({2, 3, 4, 5});
  EXPECT_EQ(message(good, good, good), "");
  EXPECT_THAT(message(f32({3, 4, 5}), good, good), HasSubstr("(C1)"));
  EXPECT_THAT(message(good, good, f32({2, 3, 4, 6})), HasSubstr("(C2)"));
  EXPECT_EQ(message(good, f32({2, 1, 4, 5}), f32({2, 1, 4, 5})), ""); // grouped queries
  EXPECT_THAT(message(good, f32({2, 2, 4, 5}), f32({2, 2, 4, 5})), HasSubstr("(C4)"));
  EXPECT_THAT(message(good, f32({2, 0, 4, 5}), f32({2, 0, 4, 5})), HasSubstr("(C4)"));
  EXPECT_THAT(message(good, f32({2, 6, 4, 5}), f32({2, 6, 4, 5})), HasSubstr("(C4)"));
  EXPECT_THAT(message(good, f32({2, 3, 4, 6}), f32({2, 3, 4, 6})), HasSubstr("(C3)"));
  Type integers(DType::i64, {2, 3, 4, 5});
  EXPECT_THAT(message(integers, integers, integers), HasSubstr("(C3)"));
  Type longSequence = f32({1, 1, int64_t(1) << 40, 1});
  EXPECT_THAT(message(longSequence, longSequence, longSequence), HasSubstr("(C5)"));
  EXPECT_THAT(message(good, good, good, {.scale = infinity}), HasSubstr("(C7)"));
  auto masked = [&](Type mask) { return inferMessage(Op::attention, {good, good, good, mask}, AttentionAttributes{}); };
  EXPECT_EQ(masked(f32({4, 4})), "");
  EXPECT_THAT(masked(f32({3, 4})), HasSubstr("(C6)"));
  EXPECT_THAT(masked(Type(DType::boolean, {4, 4})), HasSubstr("(C6)"));
  EXPECT_THAT(masked(f32({1, 2, 3, 4, 4})), HasSubstr("(C6)"));
  auto maskedTwice = [&](Type second, std::vector<Type> more = {}) {
    std::vector<Type> operands = {good, good, good, f32({4, 1}), second};
    operands.insert(operands.end(), more.begin(), more.end());
    return inferMessage(Op::attention, operands, AttentionAttributes{});
  };
  EXPECT_EQ(maskedTwice(f32({2, 1, 1, 4})), "");
  EXPECT_THAT(maskedTwice(f32({3, 4})), HasSubstr("(C6)"));
  EXPECT_THAT(maskedTwice(f32({4, 4}), {f32({4, 4})}), HasSubstr("(C10)"));
}

TEST(AttentionConstraints, OfDocumentsAreReportedByLabel) {
  Type good = f32({2, 3, 4, 5}), mask = f32({4, 4});
  auto message = [&](std::vector<Type> extras, bool hasDocuments = true, std::optional<Type> keys = {}) {
    Type k = keys.value_or(good);
    std::vector<Type> operands = {good, k, k};
    operands.insert(operands.end(), extras.begin(), extras.end());
    return inferMessage(Op::attention, operands, AttentionAttributes{.documents = hasDocuments});
  };
  auto ids = [](llvm::ArrayRef<int64_t> shape) { return Type(DType::i64, shape); };
  EXPECT_EQ(message({ids({2, 4})}), "");
  EXPECT_EQ(message({mask, ids({1, 4})}), "");
  EXPECT_THAT(message({}), HasSubstr("(C10)"));
  EXPECT_THAT(message({mask, ids({1, 4})}, false), HasSubstr("(C6)"));
  EXPECT_THAT(message({ids({3, 4})}), HasSubstr("(C11)"));
  EXPECT_THAT(message({ids({2, 3})}), HasSubstr("(C11)"));
  EXPECT_THAT(message({ids({2, 1, 4})}), HasSubstr("(C11)"));
  EXPECT_THAT(message({Type(DType::i32, {2, 4})}), HasSubstr("(C11)"));
  EXPECT_THAT(message({ids({2, 6})}, true, f32({2, 3, 6, 5})), HasSubstr("(C11)"));
}

TEST(AttentionConstraints, TakeTheAxesOfTheLayout) {
  auto message = [](bool sequenceFirst) {
    AttentionAttributes attributes{.sequenceFirst = sequenceFirst};
    return inferMessage(Op::attention, {f32({2, 3, 4, 5}), f32({2, 6, 4, 5}), f32({2, 6, 4, 5})}, attributes);
  };
  EXPECT_EQ(message(true), "");
  EXPECT_THAT(message(false), HasSubstr("(C4)"));
}

TEST(AttentionGradConstraints, AreReportedByLabel) {
  Type good = f32({2, 3, 4, 5}), lse = f32({2, 3, 4});
  auto message = [&](Type cotangent, Type result, Type statistic) {
    return inferMessage(Op::attentionGrad, {cotangent, good, good, good, result, statistic}, AttentionAttributes{});
  };
  EXPECT_EQ(message(good, good, lse), "");
  EXPECT_THAT(message(f32({2, 3, 4, 1}), good, lse), HasSubstr("(C8)"));
  EXPECT_THAT(message(good, f32({2, 3, 4, 1}), lse), HasSubstr("(C8)"));
  EXPECT_THAT(message(good, good, f32({2, 4, 3})), HasSubstr("(C9)"));
}

} // namespace
} // namespace fsdpc
