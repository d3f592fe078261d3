#include "frontend/onnx/translate/node_translation.h"

#include "frontend/onnx/translate/fold.h"
#include "ir/eval/known_value.h"
#include <algorithm>
#include <charconv>

namespace fsdpc {

// ---------------------------------------------------------------------------------------------------- random scalars

Value *TranslationState::seed() { return scalar("seed", seedRead); }
Value *TranslationState::step() { return scalar("step", stepRead); }

void TranslationState::charge(int64_t nodes) {
  constexpr int64_t most = int64_t(1) << 22;
  charged = std::min(charged + std::min(nodes, most + 1), most + 1);
  if (charged > most)
    throw Rejection{"what steps, loops and sequences of the model unroll to is more than " + std::to_string(most) +
                    " nodes: use shorter sequences or fewer steps"};
}

Value *TranslationState::scalar(llvm::StringRef name, Value *&read) {
  Module &module = builder.module();
  if (!module.state(name)) {
    State state;
    state.name = name.str();
    state.role = StateRole::scalar;
    state.type = Type(DType::i64, {});
    module.addState(state);
  }
  if (!read)
    read = builder.readState(*module.state(name));
  return read;
}

// ---------------------------------------------------------------------------------------------------- inputs

NodeTranslation::NodeTranslation(TranslationState &state, const onnx::NodeProto &node,
                                 llvm::ArrayRef<Translated> inputs)
    : state(state), node(node), opset(state.model.opset(domainOf(node))), inputs(inputs.begin(), inputs.end()) {
  outputs.resize(std::max(node.output_size(), 4)); // arity is checked for ops of ai.onnx only
}

Value *NodeTranslation::input(unsigned i) const {
  if (!hasInput(i))
    reject("input " + llvm::Twine(i) + " is missing");
  if (isSequence(i))
    reject("input " + llvm::Twine(i) + " is a sequence instead of a tensor");
  return inputs[i].tensor;
}

const TensorSequence &NodeTranslation::sequence(unsigned i) const {
  if (!isSequence(i))
    reject("input " + llvm::Twine(i) + " is no sequence");
  return *inputs[i].sequence;
}

void NodeTranslation::setSequence(unsigned i, TensorSequence elements) {
  state.charge(static_cast<int64_t>(elements.size()));
  outputs[i].sequence = std::make_shared<const TensorSequence>(std::move(elements));
}

void NodeTranslation::passOn() {
  if (inputs.empty() || !inputs[0].exists())
    reject("input 0 is missing");
  outputs[0] = inputs[0];
}

void NodeTranslation::refuseOutput(unsigned i) const {
  if (wantsOutput(i))
    reject("its output " + llvm::Twine(i) + " '" + node.output(i) + "' is not supported");
}

int64_t NodeTranslation::integer(llvm::StringRef name, int64_t fallback) const {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute ? attribute->i() : fallback;
}

double NodeTranslation::real(llvm::StringRef name, double fallback) const {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  if (!attribute)
    return fallback;
  // The file's 1e-5f is meant as 1e-5: the shortest decimal that rounds to it.
  char text[32];
  double value = attribute->f();
  auto end = std::to_chars(text, text + sizeof text, attribute->f()).ptr;
  std::from_chars(text, end, value);
  return value;
}

std::string NodeTranslation::text(llvm::StringRef name, llvm::StringRef fallback) const {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute ? attribute->s() : fallback.str();
}

Shape NodeTranslation::integers(llvm::StringRef name) const {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute ? Shape(attribute->ints().begin(), attribute->ints().end()) : Shape();
}

const onnx::TensorProto *NodeTranslation::tensor(llvm::StringRef name) const {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute && attribute->has_t() ? &attribute->t() : nullptr;
}

// ---------------------------------------------------------------------------------------------------- constants

const Dense *NodeTranslation::constantOf(const Value *value) const {
  const Node *definer = value ? value->definer() : nullptr;
  return definer && definer->op() == Op::constant ? &definer->get<ConstantAttributes>().value : nullptr;
}

std::optional<HostTensor> NodeTranslation::knownTensor(const Value *value) const { return knownValue(value); }

Shape NodeTranslation::constantIntegers(unsigned i, llvm::StringRef what) const {
  const Value *value = input(i);
  const Dense *dense = constantOf(value);
  if (!dense)
    reject(what + " (input " + llvm::Twine(i) + ") must be known when compiling, but depends on the model's inputs");
  if (value->type().rank() > 1 || isFloat(value->type().dtype()))
    reject(what + " (input " + llvm::Twine(i) + ") must be integers, but is " + toString(value->type()));
  Shape result;
  for (int64_t k = 0; k < value->type().elements(); ++k)
    result.push_back(dense->integerAt(k));
  return result;
}

int64_t NodeTranslation::constantInteger(unsigned i, llvm::StringRef what) const {
  Shape values = constantIntegers(i, what);
  if (values.size() != 1)
    reject(what + " (input " + llvm::Twine(i) + ") must be one integer, but is " + toString(input(i)->type()));
  return values[0];
}

double NodeTranslation::constantReal(unsigned i, llvm::StringRef what) const {
  const Dense *dense = constantOf(input(i));
  if (!dense || input(i)->type().elements() != 1)
    reject(what + " (input " + llvm::Twine(i) + ") must be one number known when compiling");
  return dense->at(0);
}

Shape NodeTranslation::axesFrom(unsigned i, llvm::StringRef name, int64_t rank) const {
  Shape axes = hasInput(i) ? constantIntegers(i, name) : integers(name);
  for (int64_t &axis : axes)
    axis = normalAxis(axis, rank);
  llvm::sort(axes);
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    reject("an axis is listed twice");
  return axes;
}

int64_t NodeTranslation::normalAxis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank)
    reject("axis " + llvm::Twine(axis) + " is out of range for rank " + llvm::Twine(rank));
  return axis < 0 ? axis + rank : axis;
}

// ---------------------------------------------------------------------------------------------------- building

Node *NodeTranslation::makeNode(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes) {
  llvm::Expected<Node *> built = state.builder.tryCreate(op, operands, std::move(attributes));
  if (!built)
    reject(llvm::toString(built.takeError()));
  return *built;
}

Value *NodeTranslation::make(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes) {
  Node *built = makeNode(op, operands, std::move(attributes));
  llvm::SmallVector<Value *, 2> folded = state.constants.fold(state.builder, built);
  return folded.empty() ? built->result() : folded.front();
}

Value *NodeTranslation::constant(Type type, double splat) { return state.builder.constant(std::move(type), splat); }
Value *NodeTranslation::constant(Type type, Dense value) {
  return makeConstant(state.builder, std::move(type), state.constants.shared(std::move(value)));
}

Value *NodeTranslation::integerTensor(llvm::ArrayRef<int64_t> values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(int64_t));
  std::copy_n(reinterpret_cast<const uint8_t *>(values.data()), bytes.size(), bytes.begin());
  return state.builder.constant(Type(DType::i64, {static_cast<int64_t>(values.size())}),
                                Dense(DType::i64, std::move(bytes)));
}

Shape NodeTranslation::broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) const {
  std::optional<Shape> shape = broadcastOf(a, b);
  if (!shape)
    reject("shapes " + toString(Type(DType::f32, a)).substr(3) + " and " + toString(Type(DType::f32, b)).substr(3) +
           " do not broadcast to one");
  return *shape;
}

Value *NodeTranslation::binary(Op op, Value *a, Value *b) {
  Shape shape = broadcastShape(a->type().shape(), b->type().shape());
  return make(op, {broadcast(a, shape), broadcast(b, shape)});
}

Value *NodeTranslation::select(Value *condition, Value *yes, Value *no) {
  Shape shape = broadcastShape(condition->type().shape(), broadcastShape(yes->type().shape(), no->type().shape()));
  return make(Op::select, {broadcast(condition, shape), broadcast(yes, shape), broadcast(no, shape)});
}

Value *NodeTranslation::atLeast(Value *x, Value *bound) {
  const Dense *known = constantOf(bound);
  if (known && known->storedElements() == 1 && known->at(0) == 0 && isFloat(x->type().dtype()))
    return unary(Op::relu, x);
  return select(binary(Op::lessEqual, x, bound), bound, x);
}

Value *NodeTranslation::atMost(Value *x, Value *bound) { return select(binary(Op::lessEqual, bound, x), bound, x); }

Value *NodeTranslation::cast(Value *x, DType dtype) {
  return x->type().dtype() == dtype ? x : make(Op::cast, {x}, CastAttributes{dtype});
}

Value *NodeTranslation::broadcast(Value *x, llvm::ArrayRef<int64_t> shape) {
  if (x->type().shape() == shape)
    return x;
  if (const Dense *dense = constantOf(x); dense && (dense->isSplat() || x->type().elements() == 1))
    return constant(x->type().withShape(shape), dense->isSplat() ? *dense : Dense::splat(dense->dtype(), dense->at(0)));
  const Node *definer = x->definer();
  if (definer && definer->op() == Op::broadcast)
    return make(Op::broadcast, {definer->operand(0)}, ShapeAttributes{Shape(shape)});
  return make(Op::broadcast, {x}, ShapeAttributes{Shape(shape)});
}

Value *NodeTranslation::reshape(Value *x, llvm::ArrayRef<int64_t> shape) {
  if (x->type().shape() == shape)
    return x;
  if (const Dense *dense = constantOf(x); dense && checkedElements(shape) == x->type().elements())
    return constant(x->type().withShape(shape), *dense);
  return make(Op::reshape, {x}, ShapeAttributes{Shape(shape)});
}

Value *NodeTranslation::transpose(Value *x, llvm::ArrayRef<int64_t> permutation) {
  return permutation == llvm::ArrayRef<int64_t>(allAxes(x->type().rank()))
             ? x
             : make(Op::transpose, {x}, TransposeAttributes{Shape(permutation)});
}

Value *NodeTranslation::moveAxis(Value *x, int64_t from, int64_t to) {
  Shape permutation = allAxes(x->type().rank());
  permutation.erase(permutation.begin() + from);
  permutation.insert(permutation.begin() + to, from);
  return transpose(x, permutation);
}

Value *NodeTranslation::reduce(Op op, Value *x, llvm::ArrayRef<int64_t> axes, bool keepDims) {
  return axes.empty() ? x : make(op, {x}, ReduceAttributes{Shape(axes), keepDims});
}

Value *NodeTranslation::mean(Value *x, llvm::ArrayRef<int64_t> axes, bool keepDims) {
  int64_t count = 1;
  for (int64_t axis : axes)
    count *= x->type().dim(axis);
  Value *sum = reduce(Op::reduceSum, x, axes, keepDims);
  return count == 1 ? sum : binary(Op::mul, sum, 1.0 / static_cast<double>(count));
}

Value *NodeTranslation::slice(Value *x, int64_t axis, int64_t start, int64_t size, int64_t step) {
  SliceAttributes attributes;
  attributes.starts.assign(x->type().rank(), 0);
  attributes.sizes.assign(x->type().shape().begin(), x->type().shape().end());
  attributes.steps.assign(x->type().rank(), 1);
  attributes.starts[axis] = start;
  attributes.sizes[axis] = size;
  attributes.steps[axis] = step;
  bool isFull = start == 0 && step == 1 && size == x->type().dim(axis);
  return isFull ? x : make(Op::slice, {x}, std::move(attributes));
}

Value *NodeTranslation::concat(llvm::ArrayRef<Value *> parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : make(Op::concat, parts, AxisAttributes{axis});
}

Value *NodeTranslation::iota(llvm::ArrayRef<int64_t> shape, int64_t axis, double start, double step) {
  Shape line(shape.size(), 1);
  line[axis] = shape[axis];
  std::vector<double> values(shape[axis]);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = start + step * static_cast<double>(i);
  return broadcast(constant(Type(DType::i64, line), Dense::fromDoubles(DType::i64, values)), shape);
}

Shape allAxes(int64_t rank) {
  Shape axes;
  for (int64_t i = 0; i < rank; ++i)
    axes.push_back(i);
  return axes;
}

std::optional<Shape> broadcastOf(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  if (a.size() < b.size())
    std::swap(a, b);
  Shape result(a);
  size_t extra = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t &dim = result[extra + i];
    if (dim != b[i] && dim != 1 && b[i] != 1)
      return std::nullopt;
    dim = dim == 1 ? b[i] : dim;
  }
  return result;
}

} // namespace fsdpc
