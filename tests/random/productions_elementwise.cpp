// Elementwise ops. Decisions (floor, less, select's condition) depend on exact values only.
#include "tests/random/productions.h"

#include <cmath>

namespace fsdpc {

namespace {

/// Ops that are smooth and bounded on the values in graphs.
std::optional<Tensor> smooth(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  bool isBounded =
      op == Op::tanh || op == Op::erf || op == Op::sigmoid || op == Op::sin || op == Op::cos || op == Op::atan;
  if (op == Op::exp)
    x = g.scaledTo(x, 2);
  return g.unary(op, x, op == Op::atan ? 1.6 : isBounded ? 1 : op == Op::exp ? 7 : x.scale);
}

std::optional<Tensor> ofPositive(GraphMaker &g, Op op) {
  Tensor x = g.positive(g.anyFloat());
  return g.unary(op, x, op == Op::rsqrt ? 2 : std::max(x.scale, 1.5));
}

/// Exact on exact values: neg, abs, sign, relu.
std::optional<Tensor> keepsExact(GraphMaker &g, Op op) {
  Tensor x = op == Op::sign ? g.exactFloat() : g.anyFloat();
  Tensor y = g.unary(op, x, x.scale);
  y.exact = x.exact;
  return y;
}

/// floor, ceil, round: step functions, often added to another value so that gradients still flow.
std::optional<Tensor> steps(GraphMaker &g, Op op) {
  Tensor x = g.times(g.exactFloat(), 4);
  Tensor y = g.unary(op, x, x.scale);
  y.exact = true;
  if (g.random->chance(0.5))
    return y;
  return g.binary(Op::add, g.times(y, 0.25), g.partnerOf(y), x.scale + 1);
}

std::optional<Tensor> arithmetic(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat(), y = g.partnerOf(x);
  if (g.random->chance(0.3))
    std::swap(x, y);
  if (op == Op::div)
    y = g.positive(y);
  double scale = op == Op::mul ? x.scale * y.scale : op == Op::div ? x.scale * 3 : x.scale + y.scale;
  Tensor result = g.binary(op, x, y, scale);
  result.exact = (op == Op::maximum || op == Op::minimum) && x.exact && y.exact;
  return result;
}

std::optional<Tensor> remainder(GraphMaker &g, Op op) {
  Tensor x = g.times(g.exactFloat(), 2);
  double divisor = g.random->pick({0.5, 0.75, 1.5, -1.25, 0.375});
  return g.binary(op, x, g.broadcast(g.constant(DType::f32, {}, divisor), x.shape(), x.batch), std::fabs(divisor));
}

std::optional<Tensor> power(GraphMaker &g, Op op) {
  Tensor x = g.scaledTo(g.anyFloat(), 1.5);
  if (g.random->chance(0.4)) {
    double exponent = g.random->pick({0.0, 1.0, 2.0, 3.0});
    return g.binary(op, x, g.broadcast(g.constant(DType::f32, {}, exponent), x.shape(), x.batch), 3.5);
  }
  return g.binary(op, g.positive(x), g.scaledTo(g.partnerOf(x), 1.5), 5);
}

/// A condition on exact values, of x's shape.
Tensor condition(GraphMaker &g, const Tensor &x, Op op) {
  Tensor partner = g.partnerOf(x, /*exact=*/true);
  if (!partner.exact || g.random->chance(0.3))
    partner = g.broadcast(g.constant(x.type().dtype(), {}, isFloat(x.type().dtype()) ? 0.25 : 1), x.shape(), x.batch);
  Tensor result = g.binary(op, x, partner, 1);
  result.exact = true;
  return result;
}

Tensor condition(GraphMaker &g, const Tensor &x) {
  return condition(g, x, g.random->pick({Op::less, Op::lessEqual, Op::equal}));
}

Tensor anyExact(GraphMaker &g) { return g.random->chance(0.3) ? g.anyInteger() : g.exactFloat(); }

/// Turns a condition into floats: a choice, or a factor of 0 and 1.
Tensor consumed(GraphMaker &g, const Tensor &condition) {
  Tensor yes = g.like(g.anyFloat(), condition);
  if (condition.batch < 0 && yes.batch >= 0)
    return g.cast(condition, DType::f32);
  if (yes.type().dtype() != DType::f32) // of an unbatched condition: nothing fits
    return g.cast(condition, DType::f32);
  if (g.random->chance(0.3))
    return g.binary(Op::mul, yes, g.cast(condition, DType::f32), yes.scale);
  Tensor no = g.partnerOf(yes);
  return g.make(Op::select, {condition, yes, no}, {yes.batch, std::max(yes.scale, no.scale)});
}

std::optional<Tensor> comparison(GraphMaker &g, Op op) { return consumed(g, condition(g, anyExact(g), op)); }

std::optional<Tensor> logic(GraphMaker &g, Op op) {
  Tensor x = anyExact(g);
  Tensor a = condition(g, x);
  if (op == Op::logicalNot)
    return consumed(g, g.make(op, {a}, GraphMaker::traitsOf(a)));
  return consumed(g, g.make(op, {a, condition(g, x)}, GraphMaker::traitsOf(a)));
}

std::optional<Tensor> isNan(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  return consumed(g, g.make(op, {x}, {x.batch, 1, true}));
}

std::optional<Tensor> select(GraphMaker &g, Op) { return consumed(g, condition(g, anyExact(g))); }

/// Casts to f64 and back, with an op in between. Not to 16 bits: a cotangent that is rounded before it is summed over
/// the batch differs between one rank and several. Programs in bf16 have such casts (emitted.cpp).
std::optional<Tensor> castThroughFloats(GraphMaker &g) {
  Tensor x = g.anyFloat();
  Tensor y = g.cast(x, DType::f64);
  y = g.unary(g.random->pick({Op::tanh, Op::neg, Op::sigmoid, Op::abs}), y, x.scale);
  return g.cast(y, DType::f32);
}

/// A detached value, used together with its source or instead of it.
std::optional<Tensor> detached(GraphMaker &g, Op op) {
  Tensor x = g.anyFloat();
  Tensor stopped = g.make(op, {x}, GraphMaker::traitsOf(x));
  if (g.random->chance(0.3))
    return stopped;
  return g.binary(Op::mul, x, stopped, x.scale * x.scale);
}

std::optional<Tensor> castThroughIntegers(GraphMaker &g) {
  Tensor x = g.times(g.exactFloat(), 4);
  DType dtype = g.random->pick({DType::i64, DType::i32, DType::u8, DType::boolean});
  // Negative floats are not representable in u8.
  if (dtype == DType::u8)
    x = g.make(Op::abs, {x}, {x.batch, x.scale, true});
  Tensor whole = g.cast(x, dtype);
  if (dtype == DType::i64 || dtype == DType::i32) {
    // mod also brings negative integers into range.
    int64_t limit = g.random->between(2, 9);
    Tensor divisor = g.broadcast(g.constant(dtype, {}, static_cast<double>(limit)), x.shape(), x.batch);
    g.keep(g.make(Op::mod, {whole, divisor}, {x.batch, 1, true, limit}));
  }
  Tensor back = g.cast(whole, DType::f32);
  back.scale = x.scale;
  return back;
}

std::optional<Tensor> cast(GraphMaker &g, Op) {
  return g.random->chance(0.4) ? castThroughFloats(g) : castThroughIntegers(g);
}

/// Arithmetic of integers, brought back into a range.
std::optional<Tensor> integers(GraphMaker &g, Op op) {
  Tensor x = g.anyInteger();
  Tensor result = x;
  if (op == Op::neg || op == Op::abs || op == Op::sign || op == Op::relu) {
    result = g.unary(op, x, 1);
  } else {
    Tensor y = g.random->chance(0.4) ? g.like(g.anyInteger(), x, false) : g.partnerOf(x);
    if (!(y.type() == x.type()))
      y = g.partnerOf(x);
    if (op == Op::div || op == Op::mod) // by 1 or more
      y = g.binary(Op::maximum, y, g.broadcast(g.constant(x.type().dtype(), {}, 1), x.shape(), x.batch), 1);
    result = g.binary(op, x, y, 1);
  }
  result.limit = 1 << 20;
  int64_t limit = g.random->between(2, 7);
  Tensor divisor = g.broadcast(g.constant(x.type().dtype(), {}, static_cast<double>(limit)), x.shape(), x.batch);
  Tensor inRange = g.make(Op::mod, {result, divisor}, {x.batch, 1, true, limit});
  g.keep(inRange);
  Tensor asFloat = g.cast(inRange, DType::f32);
  asFloat.scale = static_cast<double>(limit);
  return asFloat;
}

constexpr Production rows[] = {
    {Op::neg, keepsExact},     {Op::abs, keepsExact},     {Op::sign, keepsExact},      {Op::relu, keepsExact},
    {Op::exp, smooth},         {Op::tanh, smooth},        {Op::erf, smooth},           {Op::sigmoid, smooth},
    {Op::sin, smooth},         {Op::cos, smooth},         {Op::gelu, smooth},          {Op::geluTanh, smooth},
    {Op::silu, smooth},        {Op::log, ofPositive},     {Op::log1p, ofPositive},     {Op::sqrt, ofPositive},
    {Op::rsqrt, ofPositive},   {Op::floor, steps},        {Op::ceil, steps},           {Op::round, steps},
    {Op::add, arithmetic},     {Op::sub, arithmetic},     {Op::mul, arithmetic},       {Op::div, arithmetic},
    {Op::maximum, arithmetic}, {Op::minimum, arithmetic}, {Op::mod, remainder},        {Op::pow, power},
    {Op::equal, comparison},   {Op::less, comparison},    {Op::lessEqual, comparison}, {Op::logicalNot, logic},
    {Op::logicalAnd, logic},   {Op::logicalOr, logic},    {Op::logicalXor, logic},     {Op::isNan, isNan},
    {Op::select, select},      {Op::cast, cast},          {Op::add, integers},         {Op::mul, integers},
    {Op::sub, integers},       {Op::div, integers},       {Op::mod, integers},         {Op::neg, integers},
    {Op::maximum, integers},   {Op::bitAnd, integers},    {Op::atan, smooth},          {Op::stopGradient, detached},
};

} // namespace

llvm::ArrayRef<Production> elementwiseProductions() { return rows; }

} // namespace fsdpc
