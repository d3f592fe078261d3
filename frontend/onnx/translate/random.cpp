// Random numbers, drawn again for every sample and step from the run's seed, like dropout's. The `seed` of a node is
// ignored.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <numbers>

namespace fsdpc {

namespace {

/// Uniform in [0, 1), f32. A later pass finds the batch axis.
Value *uniform(NodeTranslation &t, llvm::ArrayRef<int64_t> shape) {
  RandomUniformAttributes random{t.state.dropouts++, shape.empty() ? -1 : 0, Shape(shape)};
  return t.make(Op::randomUniform, {t.state.seed(), t.state.step()}, random);
}

/// Normal with mean 0 and standard deviation 1, by the Box-Muller transform: sqrt(-2 ln(1 - u)) cos(2 pi v).
Value *normal(NodeTranslation &t, llvm::ArrayRef<int64_t> shape) {
  Value *u = uniform(t, shape), *v = uniform(t, shape);
  Value *logarithm = t.unary(Op::log, t.binary(Op::sub, t.constantLike(u, 1), u));
  Value *radius = t.unary(Op::sqrt, t.binary(Op::mul, logarithm, -2));
  return t.binary(Op::mul, radius, t.unary(Op::cos, t.binary(Op::mul, v, 2 * std::numbers::pi)));
}

DType resultType(NodeTranslation &t, DType otherwise) {
  if (!t.has("dtype"))
    return otherwise;
  int32_t type = static_cast<int32_t>(t.integer("dtype", 0));
  std::optional<DType> dtype = dtypeOf(type);
  if (!dtype)
    t.reject("elements of " + typeText(type) + " are not supported");
  return *dtype;
}

void setNumbers(NodeTranslation &t, llvm::ArrayRef<int64_t> shape, DType dtype, bool isNormal) {
  double start = isNormal ? t.real("mean", 0) : t.real("low", 0);
  double factor = isNormal ? t.real("scale", 1) : t.real("high", 1) - start;
  Value *numbers = isNormal ? normal(t, shape) : uniform(t, shape);
  t.setOutput(0, t.cast(t.binary(Op::add, t.binary(Op::mul, numbers, factor), start), dtype));
}

template <bool isNormal>
void ofShape(NodeTranslation &t) {
  setNumbers(t, t.integers("shape"), resultType(t, DType::f32), isNormal);
}

template <bool isNormal>
void like(NodeTranslation &t) {
  const Type &type = t.input(0)->type();
  setNumbers(t, type.shape(), resultType(t, isFloat(type.dtype()) ? type.dtype() : DType::f32), isNormal);
}

/// 1 with the probability that the input gives.
void bernoulli(NodeTranslation &t) {
  Value *x = t.input(0);
  Value *drawn = t.binary(Op::less, uniform(t, x->type().shape()), t.cast(x, DType::f32));
  t.setOutput(0, t.cast(drawn, resultType(t, x->type().dtype())));
}

constexpr TranslationRow rows[] = {
    {"Bernoulli", bernoulli},          {"RandomNormal", ofShape<true>},    {"RandomNormalLike", like<true>},
    {"RandomUniform", ofShape<false>}, {"RandomUniformLike", like<false>},
};

} // namespace

TranslationRows randomTranslations() { return rows; }

} // namespace fsdpc
