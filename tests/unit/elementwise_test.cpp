// Elementwise ops: values, ties and kinks, derivatives, and the constraints of their shape rules.
#include "tests/unit/gradient_check.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace fsdpc {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double notANumber = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;
using Results = llvm::SmallVector<Value *, 4>;

Type vectorType(size_t size, DType dtype) { return Type(dtype, {static_cast<int64_t>(size)}); }

/// op over vectors; booleans as 0 and 1.
Values apply(Op op, const std::vector<Values> &operands, DType dtype = DType::f32) {
  std::vector<HostTensor> inputs;
  for (const Values &values : operands)
    inputs.push_back(tensorOf(vectorType(values.size(), dtype), values));
  return valuesOf(inputs, [op](Builder &b, llvm::ArrayRef<Value *> x) { return Results{b.create(op, x)->result()}; })[0]
      .values;
}

void expectNear(const Values &found, const Values &wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan(found[i])) << "element " << i;
    else
      EXPECT_DOUBLE_EQ(found[i], wanted[i]) << "element " << i;
}

/// Odd and size-1 dims, and both operands the same value, for an op of `arity` on operands in [low, high].
void checkElementwiseGradient(Op op, unsigned arity, double low, double high) {
  for (const Shape &shape : {Shape{3, 5}, Shape{1, 7, 1}, Shape{}}) {
    GradientCase all{
        .inputs = std::vector<GradientInput>(arity, {Type(DType::f32, shape), low, high}),
        .build = [op](Builder &b, llvm::ArrayRef<Value *> x) { return Results{b.create(op, x)->result()}; }};
    checkGradients(all);
  }
  checkGradients(
      {.inputs = {{Type(DType::f32, {4}), low, high}}, .build = [op, arity](Builder &b, llvm::ArrayRef<Value *> x) {
         Value *y = b.create(op, llvm::SmallVector<Value *, 2>(arity, x[0]))->result();
         return Results{b.mul(y, x[0]), y};
       }});
}

/// The cotangents of the operands for dy = 1.
std::vector<Values> gradients(Op op, const std::vector<Values> &operands) {
  std::vector<HostTensor> inputs;
  for (const Values &values : operands)
    inputs.push_back(tensorOf(vectorType(values.size(), DType::f32), values));
  std::vector<Values> found;
  for (const HostTensor &gradient :
       gradientsOf(inputs, [op](Builder &b, llvm::ArrayRef<Value *> x) { return Results{b.create(op, x)->result()}; }))
    found.push_back(gradient.values);
  return found;
}

// ---- one operand

OP_TEST(neg, ChangesTheSign) {
  expectNear(apply(Op::neg, {{1, -2, 0}}), {-1, 2, 0});
  checkElementwiseGradient(Op::neg, 1, -2, 2);
}
OP_TEST(abs, HasDerivativeZeroAtZero) {
  expectNear(apply(Op::abs, {{1.5, -2, 0}}), {1.5, 2, 0});
  expectNear(gradients(Op::abs, {{1.5, -2, 0}})[0], {1, -1, 0});
  checkElementwiseGradient(Op::abs, 1, 0.1, 2);
  checkElementwiseGradient(Op::abs, 1, -2, -0.1);
}
OP_TEST(sign, KeepsNotANumber) { expectNear(apply(Op::sign, {{3, -0.5, 0, notANumber}}), {1, -1, 0, notANumber}); }
OP_TEST(exp, GradientUsesTheResult) {
  expectNear(apply(Op::exp, {{0, 1}}), {1, std::exp(1)});
  checkElementwiseGradient(Op::exp, 1, -2, 2);
}
OP_TEST(log, OfZeroIsMinusInfinity) {
  expectNear(apply(Op::log, {{1, 0}}), {0, -infinity});
  checkElementwiseGradient(Op::log, 1, 0.2, 3);
}
OP_TEST(log1p, IsExactNearZero) {
  expectNear(apply(Op::log1p, {{0, 1e-20}}), {0, 1e-20});
  checkElementwiseGradient(Op::log1p, 1, -0.5, 3);
}
OP_TEST(sqrt, HasAnInfiniteDerivativeAtZero) {
  expectNear(apply(Op::sqrt, {{4, 2}}), {2, std::sqrt(2)});
  expectNear(gradients(Op::sqrt, {{0}})[0], {infinity});
  checkElementwiseGradient(Op::sqrt, 1, 0.2, 3);
}
OP_TEST(rsqrt, IsOneOverTheRoot) {
  expectNear(apply(Op::rsqrt, {{4}}), {0.5});
  checkElementwiseGradient(Op::rsqrt, 1, 0.3, 3);
}
OP_TEST(tanh, Saturates) {
  expectNear(apply(Op::tanh, {{0, 1000}}), {0, 1});
  checkElementwiseGradient(Op::tanh, 1, -2, 2);
}
OP_TEST(erf, IsTheErrorFunction) {
  expectNear(apply(Op::erf, {{0, 0.5}}), {0, std::erf(0.5)});
  checkElementwiseGradient(Op::erf, 1, -2, 2);
}
OP_TEST(sigmoid, DoesNotOverflow) {
  expectNear(apply(Op::sigmoid, {{0, -1000, 1000}}), {0.5, 0, 1});
  checkElementwiseGradient(Op::sigmoid, 1, -3, 3);
}
OP_TEST(relu, HasDerivativeZeroAtZero) {
  expectNear(apply(Op::relu, {{-1, 0, 2, notANumber}}), {0, 0, 2, notANumber});
  expectNear(gradients(Op::relu, {{-1, 0, 2}})[0], {0, 0, 1});
  checkElementwiseGradient(Op::relu, 1, 0.1, 2);
}
OP_TEST(sin, IsSine) {
  expectNear(apply(Op::sin, {{0, 1}}), {0, std::sin(1)});
  checkElementwiseGradient(Op::sin, 1, -3, 3);
}
OP_TEST(cos, IsCosine) {
  expectNear(apply(Op::cos, {{0, 1}}), {1, std::cos(1)});
  checkElementwiseGradient(Op::cos, 1, -3, 3);
}
OP_TEST(atan, IsTheInverseOfTangent) {
  expectNear(apply(Op::atan, {{0, -1, 1e300}}), {0, -std::numbers::pi / 4, std::numbers::pi / 2});
  expectNear(gradients(Op::atan, {{0, 1}})[0], {1, 0.5});
  checkElementwiseGradient(Op::atan, 1, -3, 3);
}
OP_TEST(floor, RoundsDown) { expectNear(apply(Op::floor, {{1.5, -1.5, 2}}), {1, -2, 2}); }
OP_TEST(ceil, RoundsUp) { expectNear(apply(Op::ceil, {{1.5, -1.5, 2}}), {2, -1, 2}); }
OP_TEST(round, TakesHalvesToEven) {
  expectNear(apply(Op::round, {{0.5, 1.5, 2.5, -0.5, -1.5, 1.2}}), {0, 2, 2, 0, -2, 1});
}
OP_TEST(gelu, IsTheErfForm) {
  expectNear(apply(Op::gelu, {{0, 1}}), {0, 0.5 * (1 + std::erf(1 / std::sqrt(2)))});
  checkElementwiseGradient(Op::gelu, 1, -3, 3);
}
OP_TEST(geluTanh, IsTheTanhForm) {
  double argument = std::sqrt(2 / M_PI) * (1 + 0.044715);
  expectNear(apply(Op::geluTanh, {{0, 1}}), {0, 0.5 * (1 + std::tanh(argument))});
  checkElementwiseGradient(Op::geluTanh, 1, -3, 3);
}
OP_TEST(geluGrad, IsTheSlopeOfGeluTimesTheCotangent) {
  double step = 1e-5;
  Values ends = apply(Op::gelu, {{0.7 + step, 0.7 - step}});
  EXPECT_NEAR(apply(Op::geluGrad, {{0.7}, {3}})[0], 3 * (ends[0] - ends[1]) / (2 * step), 1e-8);
}
OP_TEST(geluTanhGrad, IsTheSlopeOfGeluTanhTimesTheCotangent) {
  double step = 1e-5;
  Values ends = apply(Op::geluTanh, {{0.7 + step, 0.7 - step}});
  EXPECT_NEAR(apply(Op::geluTanhGrad, {{0.7}, {3}})[0], 3 * (ends[0] - ends[1]) / (2 * step), 1e-8);
}
OP_TEST(silu, IsXTimesItsSigmoid) {
  expectNear(apply(Op::silu, {{0, 1, -2}}), {0, 1 / (1 + std::exp(-1)), -2 / (1 + std::exp(2))});
  checkElementwiseGradient(Op::silu, 1, -3, 3);
}
OP_TEST(siluGrad, IsTheSlopeOfSiluTimesTheCotangent) {
  double step = 1e-5;
  Values ends = apply(Op::silu, {{0.7 + step, 0.7 - step}});
  EXPECT_NEAR(apply(Op::siluGrad, {{0.7}, {3}})[0], 3 * (ends[0] - ends[1]) / (2 * step), 1e-8);
}
OP_TEST(logicalNot, Negates) { expectNear(apply(Op::logicalNot, {{0, 1}}, DType::boolean), {1, 0}); }
OP_TEST(isNan, FindsNotANumber) { expectNear(apply(Op::isNan, {{1, notANumber, infinity}}), {0, 1, 0}); }

// ---- two operands

OP_TEST(add, Adds) {
  expectNear(apply(Op::add, {{1, 2}, {3, -4}}), {4, -2});
  checkElementwiseGradient(Op::add, 2, -2, 2);
}
OP_TEST(sub, Subtracts) {
  expectNear(apply(Op::sub, {{1, 2}, {3, -4}}), {-2, 6});
  checkElementwiseGradient(Op::sub, 2, -2, 2);
}
OP_TEST(mul, Multiplies) {
  expectNear(apply(Op::mul, {{1, 2}, {3, -4}}), {3, -8});
  checkElementwiseGradient(Op::mul, 2, -2, 2);
}
OP_TEST(div, TruncatesIntegersTowardZero) {
  expectNear(apply(Op::div, {{1, -7}, {4, 2}}), {0.25, -3.5});
  expectNear(apply(Op::div, {{7, -7, 7, -7, 5}, {2, 2, -2, -2, 0}}, DType::i64), {3, -3, -3, 3, 0});
  checkElementwiseGradient(Op::div, 2, 0.5, 2);
}
OP_TEST(mod, TakesTheSignOfTheDivisorForIntegersAndOfTheDividendForFloats) {
  expectNear(apply(Op::mod, {{7, -7, 7, -7, 6, 5}, {3, 3, -3, -3, 3, 0}}, DType::i64), {1, 2, -2, -1, 0, 0});
  expectNear(apply(Op::mod, {{7, -7, 7, -7}, {3, 3, -3, -3}}), {1, -1, 1, -1});
  checkGradients(
      {.inputs = {{Type(DType::f32, {2, 3}), 7.2, 7.8}, {Type(DType::f32, {2, 3}), 2.1, 2.3}},
       .build = [](Builder &b, llvm::ArrayRef<Value *> x) { return Results{b.binary(Op::mod, x[0], x[1])}; }});
}
OP_TEST(pow, HasBothDerivatives) {
  expectNear(apply(Op::pow, {{2, -2, 9, 0}, {3, 3, 0.5, 0}}), {8, -8, 3, 1});
  expectNear(apply(Op::pow, {{2, 2}, {3, -1}}, DType::i64), {8, 0});
  checkElementwiseGradient(Op::pow, 2, 0.5, 2);
}
OP_TEST(pow, OfNegativeNumbersWithConstantExponentsHasNoLogarithm) {
  for (double exponent : {0.0, 1.0, 2.0, 3.0, -1.0})
    checkGradients(
        {.inputs = {{Type(DType::f32, {5}), -2, -0.5}}, .build = [exponent](Builder &b, llvm::ArrayRef<Value *> x) {
           return Results{b.binary(Op::pow, x[0], b.constantLike(x[0], exponent))};
         }});
}
OP_TEST(pow, IsFlatAtZeroToTheZeroAndInTheExponentOfZero) {
  std::vector<Values> found = gradients(Op::pow, {{0, 0, 3}, {0, 2, 0}});
  expectNear(found[0], {0, 0, 0});
  expectNear(found[1], {0, 0, std::log(3)});
}
OP_TEST(maximum, SplitsTheCotangentOfATie) {
  expectNear(apply(Op::maximum, {{1, 5, notANumber, 1}, {2, 2, 1, notANumber}}), {2, 5, notANumber, notANumber});
  std::vector<Values> found = gradients(Op::maximum, {{1, 2, 3}, {2, 2, 2}});
  expectNear(found[0], {0, 0.5, 1});
  expectNear(found[1], {1, 0.5, 0});
  checkElementwiseGradient(Op::maximum, 2, -2, 2);
}
OP_TEST(minimum, SplitsTheCotangentOfATie) {
  expectNear(apply(Op::minimum, {{1, 5, notANumber, 1}, {2, 2, 1, notANumber}}), {1, 2, notANumber, notANumber});
  std::vector<Values> found = gradients(Op::minimum, {{1, 2, 3}, {2, 2, 2}});
  expectNear(found[0], {1, 0.5, 0});
  expectNear(found[1], {0, 0.5, 1});
  checkElementwiseGradient(Op::minimum, 2, -2, 2);
}
OP_TEST(equal, ComparesAnything) {
  expectNear(apply(Op::equal, {{1, 2}, {1, 3}}), {1, 0});
  expectNear(apply(Op::equal, {{1, 0}, {0, 0}}, DType::boolean), {0, 1});
}
OP_TEST(less, IsStrict) { expectNear(apply(Op::less, {{1, 2, 3}, {2, 2, 2}}), {1, 0, 0}); }
OP_TEST(lessEqual, HoldsForEqualElements) { expectNear(apply(Op::lessEqual, {{1, 2, 3}, {2, 2, 2}}), {1, 1, 0}); }
OP_TEST(logicalAnd, IsBoth) {
  expectNear(apply(Op::logicalAnd, {{0, 0, 1, 1}, {0, 1, 0, 1}}, DType::boolean), {0, 0, 0, 1});
}
OP_TEST(logicalOr, IsEither) {
  expectNear(apply(Op::logicalOr, {{0, 0, 1, 1}, {0, 1, 0, 1}}, DType::boolean), {0, 1, 1, 1});
}
OP_TEST(logicalXor, IsExactlyOne) {
  expectNear(apply(Op::logicalXor, {{0, 0, 1, 1}, {0, 1, 0, 1}}, DType::boolean), {0, 1, 1, 0});
}

OP_TEST(bitAnd, HasTheBitsOfBoth) {
  expectNear(apply(Op::bitAnd, {{6, 5, -1, -8}, {3, 8, 77, 13}}, DType::i64), {2, 0, 77, 8});
  expectNear(apply(Op::bitAnd, {{255, 7}, {129, 4}}, DType::u8), {129, 4});
  EXPECT_EQ(inferMessage(Op::bitAnd, {Type(DType::f32, {2}), Type(DType::f32, {2})}),
            "bit_and: (C2) elements must be integer: f32[2]");
}

// ---- select, cast

OP_TEST(select, GivesExactZerosToWhatIsNotChosen) {
  BuildFunction build = [](Builder &b, llvm::ArrayRef<Value *> x) {
    return Results{b.select(x[0], b.unary(Op::sqrt, x[1]), x[2])};
  };
  // sqrt'(0) is infinite, and 0 times it would be NaN. An operand that is not chosen gets an exact zero instead.
  std::vector<HostTensor> inputs = {tensorOf(Type(DType::boolean, {2}), {1, 0}),
                                    tensorOf(Type(DType::f32, {2}), {4, 9}), tensorOf(Type(DType::f32, {2}), {-1, -2})};
  expectNear(valuesOf(inputs, build)[0].values, {2, -2});
  std::vector<HostTensor> found = gradientsOf(inputs, build);
  expectNear(found[1].values, {0.25, 0});
  expectNear(found[2].values, {0, 1});
  HostTensor infiniteSeed = tensorOf(Type(DType::f32, {2}), {1, infinity});
  expectNear(gradientsOf(inputs, build, {infiniteSeed})[1].values, {0.25, 0});
}

OP_TEST(select, HasTheDerivativeOfWhatItChooses) {
  checkGradients(
      {.inputs = {{Type(DType::boolean, {3, 1}), 0, 2}, {Type(DType::f32, {3, 1})}, {Type(DType::f32, {3, 1})}},
       .build = [](Builder &b, llvm::ArrayRef<Value *> x) { return Results{b.select(x[0], x[1], x[2])}; }});
}

Values castTo(DType to, DType from, const Values &values) {
  return valuesOf({tensorOf(vectorType(values.size(), from), values)},
                  [to](Builder &b, llvm::ArrayRef<Value *> x) {
                    return Results{b.create(Op::cast, {x[0]}, CastAttributes{to})->result()};
                  })[0]
      .values;
}

OP_TEST(cast, TruncatesToIntegersAndComparesWithZeroForBool) {
  expectNear(castTo(DType::i64, DType::f32, {1.9, -1.9}), {1, -1});
  expectNear(castTo(DType::boolean, DType::f32, {0, 0.1, -3}), {0, 1, 1});
  expectNear(castTo(DType::u8, DType::i64, {-1, 256, 7}), {255, 0, 7});
  expectNear(castTo(DType::i32, DType::i64, {2147483648.0, -2147483649.0, -5}), {-2147483648.0, 2147483647.0, -5});
}

OP_TEST(cast, PassesCotangentsBetweenFloats) {
  checkGradients({.inputs = {{Type(DType::f32, {3})}}, .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                    return Results{b.cast(b.unary(Op::exp, b.cast(x[0], DType::f64)), DType::f32)};
                  }});
}

// ---- shape rules

TEST(Elementwise, OperandsHaveOneType) {
  EXPECT_EQ(inferMessage(Op::add, {Type(DType::f32, {2}), Type(DType::f32, {3})}),
            "add: (C1) operand 1 is f32[3], operand 0 is f32[2]");
  EXPECT_NE(inferMessage(Op::add, {Type(DType::f32, {2}), Type(DType::f64, {2})}), "");
}

TEST(Elementwise, ElementsAreOfTheRightKind) {
  EXPECT_EQ(inferMessage(Op::exp, {Type(DType::i64, {2})}), "exp: (C2) elements must be float: i64[2]");
  EXPECT_EQ(inferMessage(Op::add, {Type(DType::boolean, {}), Type(DType::boolean, {})}),
            "add: (C2) elements must be a number: bool[]");
  EXPECT_EQ(inferMessage(Op::logicalAnd, {Type(DType::f32, {}), Type(DType::f32, {})}),
            "and: (C2) elements must be bool: f32[]");
}

TEST(Elementwise, ComparisonsAreBool) {
  EXPECT_EQ(inferredTypes(Op::less, {Type(DType::f32, {2}), Type(DType::f32, {2})})[0], Type(DType::boolean, {2}));
  EXPECT_EQ(inferredTypes(Op::isNan, {Type(DType::f32, {2})})[0], Type(DType::boolean, {2}));
}

TEST(Elementwise, SelectNamesWhatDiffers) {
  Type x(DType::f32, {2});
  EXPECT_EQ(inferMessage(Op::select, {x, x, x}), "select: (C1) the condition is f32[2], the operands are f32[2]");
  EXPECT_EQ(inferMessage(Op::select, {Type(DType::boolean, {2}), x, Type(DType::f64, {2})}),
            "select: (C2) operand 2 is f64[2], operand 1 is f32[2]");
}

TEST(Elementwise, OperandsAreCountedAndTensors) {
  EXPECT_EQ(inferMessage(Op::add, {Type(DType::f32, {})}), "add: (C0) takes 2 operands, got 1");
  EXPECT_EQ(inferMessage(Op::neg, {Type::future(Type(DType::f32, {2}))}),
            "neg: (C0) operand 0 must be a tensor, not future<f32[2]>");
}

} // namespace
} // namespace fsdpc
