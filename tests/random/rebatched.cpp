#include "tests/random/rebatched.h"

#include "tests/random/graph_maker.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

namespace {

template <class A>
Shape &shapeIn(AttributesBase &attributes) {
  return static_cast<Attributes<A> &>(attributes).value.shape;
}

/// The attribute that specifies the number of samples of the result. Null if the operands determine it.
Shape *shapeAttribute(Op op, AttributesBase &attributes) {
  switch (op) {
  case Op::constant: return &shapeIn<ConstantAttributes>(attributes);
  case Op::iota: return &shapeIn<IotaAttributes>(attributes);
  case Op::randomUniform: return &shapeIn<RandomUniformAttributes>(attributes);
  case Op::broadcast:
  case Op::reshape: return &shapeIn<ShapeAttributes>(attributes);
  case Op::convolutionGradInput: return &shapeIn<ConvolutionAttributes>(attributes);
  case Op::slice: return &static_cast<Attributes<SliceAttributes> &>(attributes).value.sizes;
  default: return nullptr;
  }
}

std::unique_ptr<AttributesBase> rebatchedAttributes(const Node &node, int64_t factor) {
  if (!node.attributes())
    return nullptr;
  std::unique_ptr<AttributesBase> attributes = node.attributes()->clone();
  Shape *shape = shapeAttribute(node.op(), *attributes);
  std::optional<int64_t> axis = shape && node.resultCount() ? batchAxisOfName(node.result()->name()) : std::nullopt;
  if (axis && *axis < static_cast<int64_t>(shape->size()))
    (*shape)[*axis] *= factor;
  return attributes;
}

} // namespace

std::unique_ptr<Module> rebatched(const Module &graph, int64_t factor) {
  auto result = std::make_unique<Module>();
  result->name = graph.name;
  result->facts = graph.facts;
  result->units = graph.units;
  result->parameters = graph.parameters;
  for (const State &state : graph.states)
    result->addState(state);
  const Function &from = *graph.function(FunctionKind::forward);
  Function &to = *result->addFunction(FunctionKind::forward);
  llvm::DenseMap<const Value *, Value *> values;
  for (const Argument &argument : from.arguments()) {
    Shape shape(argument.value->type().shape());
    shape[0] *= factor;
    values[argument.value.get()] =
        to.addArgument(argument.kind, argument.name, argument.value->type().withShape(shape));
  }
  Builder builder(to);
  for (const Node *node : from) {
    builder.inherit(*node);
    llvm::SmallVector<Value *, 4> operands;
    for (Value *operand : node->operands())
      operands.push_back(values.lookup(operand));
    llvm::Expected<Node *> copy = builder.tryCreate(node->op(), operands, rebatchedAttributes(*node, factor));
    if (!copy) {
      llvm::consumeError(copy.takeError());
      return nullptr;
    }
    for (unsigned i = 0; i < node->resultCount(); ++i) {
      (*copy)->result(i)->setName(node->result(i)->name());
      values[node->result(i)] = (*copy)->result(i);
    }
  }
  return result;
}

} // namespace fsdpc
