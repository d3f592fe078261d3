// Elementwise ops of two and three operands, and cast.
#include "ir/ops/elementwise.h"

#include <cmath>

namespace fsdpc {

namespace {

using enum ElementKind;

Value *cotangentItself(const BinaryVjp &v) { return v.dy; }

/// Integers wrap in two's complement.
double wrapToInteger(double value, DType dtype) {
  if (!std::isfinite(value))
    return 0;
  double truncated = std::trunc(value);
  if (dtype == DType::u8)
    return truncated - 256 * std::floor(truncated / 256);
  if (dtype == DType::i32)
    return truncated - 0x1p32 * std::floor(truncated / 0x1p32 + 0.5);
  return truncated;
}

double castScalar(const double *a, DType dtype) {
  if (dtype == DType::boolean)
    return a[0] != 0;
  return isFloat(dtype) ? a[0] : wrapToInteger(a[0], dtype);
}

double divScalar(const double *a, DType dtype) {
  if (isFloat(dtype))
    return a[0] / a[1];
  return a[1] == 0 ? 0 : std::trunc(a[0] / a[1]);
}

double modScalar(const double *a, DType dtype) {
  if (isFloat(dtype))
    return std::fmod(a[0], a[1]);
  if (a[1] == 0)
    return 0;
  double remainder = std::fmod(a[0], a[1]);
  return remainder != 0 && (remainder < 0) != (a[1] < 0) ? remainder + a[1] : remainder;
}

double powScalar(const double *a, DType dtype) {
  double power = std::pow(a[0], a[1]);
  return isFloat(dtype) ? power : std::trunc(power);
}

/// b * a^(b - 1), and exactly 0 where b is 0, for every a.
Value *powBaseRule(const BinaryVjp &v) {
  Builder &b = v.builder;
  std::optional<double> exponent = splatOf(v.b);
  if (exponent == 0.0)
    return nullptr;
  if (exponent == 1.0)
    return v.dy;
  if (exponent == 2.0)
    return b.mul(v.dy, b.mul(b.constantLike(v.a, 2), v.a));
  if (exponent)
    return b.mul(v.dy, b.mul(v.b, b.binary(Op::pow, v.a, b.constantLike(v.a, *exponent - 1))));
  Value *slope = b.mul(v.b, b.binary(Op::pow, v.a, b.sub(v.b, b.constantLike(v.b, 1))));
  Value *zero = b.constantLike(v.a, 0);
  return b.select(b.binary(Op::equal, v.b, zero), zero, b.mul(v.dy, slope));
}

/// y * log(a), and 0 where 0 is raised to a power >= 0, because y is constant there.
Value *powExponentRule(const BinaryVjp &v) {
  Builder &b = v.builder;
  Value *zero = b.constantLike(v.a, 0);
  Value *still = b.binary(Op::logicalAnd, b.binary(Op::equal, v.a, zero), b.binary(Op::lessEqual, zero, v.b));
  return b.select(still, zero, b.mul(v.dy, b.mul(v.y, b.unary(Op::log, v.a))));
}

/// dy where `smaller` < `larger`, half of it at ties.
Value *cotangentOfExtremum(const BinaryVjp &v, Value *smaller, Value *larger) {
  Builder &b = v.builder;
  Value *half = b.mul(v.dy, b.constantLike(v.dy, 0.5));
  Value *tie = b.select(b.binary(Op::equal, v.a, v.b), half, b.constantLike(v.dy, 0));
  return b.select(b.binary(Op::less, smaller, larger), v.dy, tie);
}

llvm::Error inferSelect(llvm::ArrayRef<Type> operands, const AttributesBase *, llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(selectInfo, operands))
    return error;
  if (operands[0].dtype() != DType::boolean || operands[0].shape() != operands[1].shape())
    return constraintError("select", "C1",
                           "the condition is " + toString(operands[0]) + ", the operands are " + toString(operands[1]));
  if (llvm::Error error = checkSame(selectInfo, "C2", operands, 1, 2))
    return error;
  return addResult(selectInfo, "C2", operands[1].dtype(), operands[1].shape(), results);
}

void selectVjp(VjpContext &context) {
  Builder &b = context.builder;
  Value *condition = context.node.operand(0), *dy = context.resultCotangents[0];
  if (!dy)
    return;
  if (context.needed[1])
    context.operandCotangents[1] = b.select(condition, dy, b.constantLike(dy, 0));
  if (context.needed[2])
    context.operandCotangents[2] = b.select(condition, b.constantLike(dy, 0), dy);
}

llvm::Error inferCast(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                      llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(castInfo, operands))
    return error;
  return addResult(castInfo, "C1", attributesOf<CastAttributes>(attributes).to, operands[0].shape(), results);
}

void castVjp(VjpContext &context) {
  Value *x = context.node.operand(0), *dy = context.resultCotangents[0];
  if (dy && context.needed[0] && isFloat(x->type().dtype()) && isFloat(dy->type().dtype()))
    context.operandCotangents[0] = context.builder.cast(dy, x->type().dtype());
}

constexpr llvm::StringRef namesSelect[] = {"condition", "yes", "no"};

constexpr OpInfo withCastAttributes(OpInfo info) {
  info.makeAttributes = makeAttributes<CastAttributes>;
  return info;
}

} // namespace

constinit const OpInfo addInfo = elementwiseOp<[](const double *a, DType) { return a[0] + a[1]; }>(
    "add", {.text = "{0} + {1}", .wraps = true}, "a + b. (C1) a and b have one type. (C2) They are numbers.", namesAB,
    inferSame<addInfo, number>, binaryVjp<cotangentItself, cotangentItself>, commutative);

constinit const OpInfo subInfo = elementwiseOp<[](const double *a, DType) { return a[0] - a[1]; }>(
    "sub", {.text = "{0} - {1}", .wraps = true}, "a - b. (C1) a and b have one type. (C2) They are numbers.", namesAB,
    inferSame<subInfo, number>,
    binaryVjp<cotangentItself, [](const BinaryVjp &v) { return v.builder.unary(Op::neg, v.dy); }>);

constinit const OpInfo mulInfo = elementwiseOp<[](const double *a, DType) { return a[0] * a[1]; }>(
    "mul", {.text = "{0} * {1}", .wraps = true}, "a * b. (C1) a and b have one type. (C2) They are numbers.", namesAB,
    inferSame<mulInfo, number>,
    binaryVjp<[](const BinaryVjp &v) { return v.builder.mul(v.dy, v.b); },
              [](const BinaryVjp &v) { return v.builder.mul(v.dy, v.a); }>,
    commutative);

constinit const OpInfo divInfo = elementwiseOp<divScalar>(
    "div", {.text = "{0} / {1}", .integerText = "scalar::div({0}, {1})", .operations = 4},
    "a / b; integers truncate toward zero, and 0 divides to 0. (C1) a and b have one type. (C2) They are numbers.",
    namesAB, inferSame<divInfo, number>,
    binaryVjp<[](const BinaryVjp &v) { return v.builder.div(v.dy, v.b); },
              [](const BinaryVjp &v) {
                Builder &b = v.builder;
                return b.unary(Op::neg, b.div(b.mul(v.dy, v.y), v.b));
              }>);

// a = b * trunc(a / b) + y, so the derivative by b is -trunc(a / b) = (y - a) / b.
constinit const OpInfo modInfo =
    elementwiseOp<modScalar>("mod", {.text = "scalar::mod({0}, {1})"},
                             "Remainder of a / b: with the sign of a for floats, of b for integers (0 where b is 0). "
                             "(C1) a and b have one type. "
                             "(C2) They are numbers.",
                             namesAB, inferSame<modInfo, number>, binaryVjp<cotangentItself, [](const BinaryVjp &v) {
                               Builder &b = v.builder;
                               return b.mul(v.dy, b.div(b.sub(v.y, v.a), v.b));
                             }>);

constinit const OpInfo powInfo = elementwiseOp<powScalar>(
    "pow", {.text = "scalar::pow({0}, {1})", .integerText = "scalar::integerPow({0}, {1})", .operations = 30},
    "a to the power b. (C1) a and b have one type. (C2) They are numbers.", namesAB, inferSame<powInfo, number>,
    binaryVjp<powBaseRule, powExponentRule>);

constinit const OpInfo maximumInfo = elementwiseOp<[](const double *a, DType) {
  return a[1] < a[0] || std::isnan(a[0]) ? a[0] : a[1];
}>("max", {.text = "scalar::max({0}, {1})", .isExact = true},
   "The larger of a and b, NaN if one is NaN; a tie gives each half of the cotangent. (C1) a and b have one type. (C2) "
   "They are numbers.",
   namesAB, inferSame<maximumInfo, number>,
   binaryVjp<[](const BinaryVjp &v) { return cotangentOfExtremum(v, v.b, v.a); },
             [](const BinaryVjp &v) { return cotangentOfExtremum(v, v.a, v.b); }>,
   commutative);

constinit const OpInfo minimumInfo =
    elementwiseOp<[](const double *a, DType) { return a[0] < a[1] || std::isnan(a[0]) ? a[0] : a[1]; }>(
        "min", {.text = "scalar::min({0}, {1})", .isExact = true},
        "The smaller of a and b, NaN if one is NaN; a tie gives each half of the cotangent. (C1) a and b have one "
        "type. (C2) "
        "They are numbers.",
        namesAB, inferSame<minimumInfo, number>,
        binaryVjp<[](const BinaryVjp &v) { return cotangentOfExtremum(v, v.a, v.b); },
                  [](const BinaryVjp &v) { return cotangentOfExtremum(v, v.b, v.a); }>,
        commutative);

constinit const OpInfo equalInfo = elementwiseOp<[](const double *a, DType) { return a[0] == a[1] ? 1.0 : 0.0; }>(
    "equal", {.text = "{0} == {1}"}, "a == b as bool. (C1) a and b have one type.", namesAB,
    inferPredicate<equalInfo, any>, notDifferentiable, commutative);

constinit const OpInfo lessInfo = elementwiseOp<[](const double *a, DType) { return a[0] < a[1] ? 1.0 : 0.0; }>(
    "less", {.text = "{0} < {1}"}, "a < b as bool. (C1) a and b have one type. (C2) They are numbers.", namesAB,
    inferPredicate<lessInfo, number>, notDifferentiable);

constinit const OpInfo lessEqualInfo = elementwiseOp<[](const double *a, DType) { return a[0] <= a[1] ? 1.0 : 0.0; }>(
    "less_equal", {.text = "{0} <= {1}"}, "a <= b as bool. (C1) a and b have one type. (C2) They are numbers.", namesAB,
    inferPredicate<lessEqualInfo, number>, notDifferentiable);

constinit const OpInfo logicalAndInfo =
    elementwiseOp<[](const double *a, DType) { return a[0] != 0 && a[1] != 0 ? 1.0 : 0.0; }>(
        "and", {.text = "{0} & {1}"}, "Both. (C1) a and b have one type. (C2) They are bool.", namesAB,
        inferSame<logicalAndInfo, boolean>, notDifferentiable, commutative);

constinit const OpInfo logicalOrInfo =
    elementwiseOp<[](const double *a, DType) { return a[0] != 0 || a[1] != 0 ? 1.0 : 0.0; }>(
        "or", {.text = "{0} | {1}"}, "One or both. (C1) a and b have one type. (C2) They are bool.", namesAB,
        inferSame<logicalOrInfo, boolean>, notDifferentiable, commutative);

constinit const OpInfo logicalXorInfo =
    elementwiseOp<[](const double *a, DType) { return (a[0] != 0) != (a[1] != 0) ? 1.0 : 0.0; }>(
        "xor", {.text = "{0} != {1}"}, "Exactly one. (C1) a and b have one type. (C2) They are bool.", namesAB,
        inferSame<logicalXorInfo, boolean>, notDifferentiable, commutative);

constinit const OpInfo bitAndInfo = elementwiseOp<[](const double *a, DType) {
  return static_cast<double>(static_cast<int64_t>(a[0]) & static_cast<int64_t>(a[1]));
}>("bit_and", {.text = "{0} & {1}", .wraps = true},
   "The bits that both have, of two's complement. (C1) a and b have one type. (C2) They are integers.", namesAB,
   inferSame<bitAndInfo, integer>, notDifferentiable, commutative);

constinit const OpInfo selectInfo = elementwiseOp<[](const double *a, DType) { return a[0] != 0 ? a[1] : a[2]; }>(
    "select", {.text = "{0} ? {1} : {2}", .isExact = true},
    "yes where the condition holds, else no; what is not chosen gets a cotangent of exactly 0. (C1) The condition is "
    "bool of "
    "the operands' shape. (C2) yes and no have one type.",
    namesSelect, inferSelect, selectVjp);

constinit const OpInfo castInfo =
    withCastAttributes(elementwiseOp<castScalar>("cast", {.text = "scalar::cast<{T}>({0})"},
                                                 "x in dtype `to`: bool is x != 0, integers truncate toward zero and "
                                                 "wrap. Cotangents flow between floats only. (C1) The "
                                                 "result's bytes fit in memory.",
                                                 namesX, inferCast, castVjp));

} // namespace fsdpc
