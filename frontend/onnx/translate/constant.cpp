// Values that the file or the shapes determine.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <cmath>

namespace fsdpc {

namespace {

Value *constantOfTensor(NodeTranslation &t, const onnx::TensorProto &tensor) {
  if (llvm::Error error = checkTensor(t.state.model, tensor))
    t.reject(llvm::toString(std::move(error)));
  llvm::Expected<Dense> dense = readDense(t.state.model, tensor);
  if (!dense)
    t.reject(llvm::toString(dense.takeError()));
  Type type(dense->dtype(), shapeOf(tensor));
  return t.constant(type, std::move(*dense));
}

Value *lineOfReals(NodeTranslation &t, const onnx::AttributeProto &attribute) {
  std::vector<double> values(attribute.floats().begin(), attribute.floats().end());
  return t.constant(Type(DType::f32, {static_cast<int64_t>(values.size())}), Dense::fromDoubles(DType::f32, values));
}

void constant(NodeTranslation &t) {
  if (const onnx::TensorProto *tensor = t.tensor("value"))
    return t.setOutput(0, constantOfTensor(t, *tensor));
  if (const onnx::AttributeProto *attribute = attributeOf(t.node, "value_floats"))
    return t.setOutput(0, lineOfReals(t, *attribute));
  if (t.has("value_float"))
    return t.setOutput(0, t.constant(Type(DType::f32, {}), t.real("value_float", 0)));
  if (t.has("value_ints"))
    return t.setOutput(0, t.integerTensor(t.integers("value_ints")));
  if (t.has("value_int"))
    return t.setOutput(0, t.reshape(t.integerTensor({t.integer("value_int", 0)}), {}));
  t.reject("only tensors, floats and integers are supported");
}

void constantOfShape(NodeTranslation &t) {
  Shape shape = t.constantIntegers(0, "the shape");
  const onnx::TensorProto *tensor = t.tensor("value");
  Value *value = tensor ? constantOfTensor(t, *tensor) : t.constant(Type(DType::f32, {1}), 0);
  if (value->type().elements() != 1)
    t.reject("its value has " + llvm::Twine(value->type().elements()) + " elements instead of one");
  t.setOutput(0, t.broadcast(t.reshape(value, {}), shape));
}

void shapeOfInput(NodeTranslation &t) {
  llvm::ArrayRef<int64_t> shape = t.input(0)->type().shape();
  int64_t rank = static_cast<int64_t>(shape.size());
  auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t start = clamped(t.integer("start", 0)), end = clamped(t.integer("end", rank));
  t.setOutput(0, t.integerTensor(start < end ? shape.slice(start, end - start) : llvm::ArrayRef<int64_t>()));
}

void size(NodeTranslation &t) { t.setOutput(0, t.reshape(t.integerTensor({t.input(0)->type().elements()}), {})); }

void range(NodeTranslation &t) {
  double start = t.constantReal(0, "the start"), limit = t.constantReal(1, "the limit"),
         step = t.constantReal(2, "the step");
  if (step == 0)
    t.reject("the step is 0");
  double count = std::max(0.0, std::ceil((limit - start) / step));
  if (count > (1 << 24))
    t.reject("it would have " + llvm::Twine(static_cast<int64_t>(count)) + " elements");
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = start + step * static_cast<double>(i);
  DType dtype = t.input(0)->type().dtype();
  t.setOutput(0, t.constant(Type(dtype, {static_cast<int64_t>(values.size())}), Dense::fromDoubles(dtype, values)));
}

/// Ones where column - row = k.
void eyeLike(NodeTranslation &t) {
  const Type &like = t.input(0)->type();
  if (like.rank() != 2)
    t.reject("its input has rank " + llvm::Twine(like.rank()) + " instead of 2");
  std::optional<DType> dtype = t.has("dtype") ? dtypeOf(static_cast<int32_t>(t.integer("dtype", 0))) : like.dtype();
  if (!dtype)
    t.reject("its element type is not supported");
  Value *difference = t.binary(Op::sub, t.iota(like.shape(), 1), t.iota(like.shape(), 0));
  t.setOutput(0, t.cast(t.binary(Op::equal, difference, static_cast<double>(t.integer("k", 0))), *dtype));
}

constexpr TranslationRow rows[] = {
    {"Constant", constant},  {"ConstantOfShape", constantOfShape},
    {"EyeLike", eyeLike},    {"Range", range},
    {"Shape", shapeOfInput}, {"Size", size},
};

} // namespace

TranslationRows constantTranslations() { return rows; }

} // namespace fsdpc
