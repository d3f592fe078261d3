#include "ir/builder.h"

#include "ir/ops/attributes.h"
#include "llvm/Support/ErrorHandling.h"

namespace fsdpc {

void Builder::inherit(const Node &node) {
  currentSection = node.section;
  currentUnit = node.unit;
  currentSource = node.source;
}

Node *Builder::createWithTypes(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes,
                               llvm::ArrayRef<Type> resultTypes) {
  Node *node = new Node(op, target);
  node->attributeStruct = std::move(attributes);
  node->section = currentSection;
  node->unit = currentUnit;
  node->source = currentSource;
  node->operandUses.reserve(operands.size());
  for (Value *operand : operands)
    node->appendOperand(operand);
  for (const Type &type : resultTypes) {
    auto value = std::make_unique<Value>();
    value->valueType = type;
    value->node = node;
    value->index = node->resultCount();
    node->resultValues.push_back(std::move(value));
  }
  target->insert(node, position);
  return node;
}

llvm::Expected<Node *> Builder::tryCreate(Op op, llvm::ArrayRef<Value *> operands,
                                          std::unique_ptr<AttributesBase> attributes) {
  llvm::SmallVector<Type, 4> operandTypes;
  for (Value *operand : operands)
    operandTypes.push_back(operand->type());
  if (!attributes && infoOf(op).makeAttributes)
    attributes = infoOf(op).makeAttributes();
  llvm::SmallVector<Type, 2> resultTypes;
  if (llvm::Error error = infoOf(op).infer(operandTypes, attributes.get(), resultTypes))
    return error;
  return createWithTypes(op, operands, std::move(attributes), resultTypes);
}

Node *Builder::create(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes) {
  llvm::Expected<Node *> node = tryCreate(op, operands, std::move(attributes));
  if (!node)
    llvm::report_fatal_error("a compiler-made node breaks its op's rule: " + llvm::Twine(toString(node.takeError())));
  return *node;
}

Node *Builder::clone(const Node &node, llvm::ArrayRef<Value *> operands) {
  Node *copy = create(node.op(), operands, node.attributes() ? node.attributes()->clone() : nullptr);
  copy->section = node.section;
  copy->unit = node.unit;
  copy->schedule.outline = node.schedule.outline;
  copy->schedule.stream = node.schedule.stream;
  copy->schedule.workspaceBytes = node.schedule.workspaceBytes;
  copy->source = node.source;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    copy->result(i)->setName(node.result(i)->name());
  return copy;
}

Value *Builder::cast(Value *x, DType dtype) {
  return x->type().dtype() == dtype ? x : create(Op::cast, {x}, CastAttributes{dtype})->result();
}

Value *Builder::constant(Type type, double splat) { return constant(type, Dense::splat(type.dtype(), splat)); }

Value *Builder::constant(Type type, Dense value) {
  return create(Op::constant, {}, ConstantAttributes{std::move(value), Shape(type.shape())})->result();
}

Value *Builder::broadcast(Value *x, llvm::ArrayRef<int64_t> shape) {
  return x->type().shape() == shape ? x : create(Op::broadcast, {x}, ShapeAttributes{Shape(shape)})->result();
}

Value *Builder::reshape(Value *x, llvm::ArrayRef<int64_t> shape) {
  return x->type().shape() == shape ? x : create(Op::reshape, {x}, ShapeAttributes{Shape(shape)})->result();
}

Value *Builder::transpose(Value *x, llvm::ArrayRef<int64_t> permutation) {
  bool identity = true;
  for (size_t i = 0; i < permutation.size(); ++i)
    identity &= permutation[i] == static_cast<int64_t>(i);
  return identity ? x : create(Op::transpose, {x}, TransposeAttributes{Shape(permutation)})->result();
}

Value *Builder::swapLastTwo(Value *x) {
  Shape permutation;
  for (int64_t i = 0; i < x->type().rank(); ++i)
    permutation.push_back(i);
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return transpose(x, permutation);
}

Value *Builder::reduceSum(Value *x, llvm::ArrayRef<int64_t> axes, bool keepDims) {
  return axes.empty() ? x : create(Op::reduceSum, {x}, ReduceAttributes{Shape(axes), keepDims})->result();
}

Value *Builder::reduceToShape(Value *x, llvm::ArrayRef<int64_t> shape) {
  int64_t extra = x->type().rank() - static_cast<int64_t>(shape.size());
  Shape axes;
  for (int64_t i = 0; i < x->type().rank(); ++i)
    if (i < extra || (shape[i - extra] == 1 && x->type().dim(i) != 1))
      axes.push_back(i);
  return reshape(reduceSum(x, axes, false), shape);
}

Value *Builder::matmul(Value *a, Value *b, bool transposeA, bool transposeB) {
  return create(Op::matmul, {a, b}, MatmulAttributes{transposeA, transposeB})->result();
}

Value *Builder::readState(const State &state) {
  Value *value =
      create(Op::read, {}, StateAttributes{{state.name}, Shape(state.type.shape()), state.type.dtype()})->result();
  value->setName(state.name);
  return value;
}

Node *Builder::writeState(const State &state, Value *value) {
  return create(Op::write, {value}, StateAttributes{{state.name}, {}, DType::f32});
}

Node *Builder::ret(llvm::ArrayRef<Value *> values, llvm::ArrayRef<std::string> names) {
  return create(Op::ret, values, ReturnAttributes{{names.begin(), names.end()}});
}

} // namespace fsdpc
