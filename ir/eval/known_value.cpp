#include "ir/eval/known_value.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/ops/helpers.h"

#include <unordered_map>
#include <unordered_set>

namespace fsdpc {

namespace {

/// The nodes that compute a value, operands first; nullopt if it depends on more than constants, is too large, or takes
/// too many.
std::optional<std::vector<const Node *>> nodesBelow(const Value *value, int64_t maxElements) {
  constexpr size_t maxNodes = 1000;
  std::vector<const Node *> ordered;
  std::unordered_set<const Node *> seen;
  llvm::SmallVector<std::pair<const Node *, unsigned>, 16> open; // and the next operand
  const auto enter = [&](const Value *of) {
    const Node *node = of->definer();
    if (!node || !infoOf(*node).has(pure) || infoOf(*node).has(usesEnvironment) || node->op() == Op::randomUniform ||
        of->type().elements() > maxElements || seen.size() > maxNodes)
      return false;
    if (seen.insert(node).second)
      open.push_back({node, 0});
    return true;
  };
  if (!enter(value))
    return std::nullopt;
  while (!open.empty()) {
    auto &[node, next] = open.back();
    if (next == node->operandCount()) {
      ordered.push_back(node);
      open.pop_back();
    } else if (!enter(node->operand(next++))) {
      return std::nullopt;
    }
  }
  return ordered;
}

} // namespace

std::optional<HostTensor> knownValue(const Value *value, int64_t maxElements) {
  std::optional<std::vector<const Node *>> nodes = value ? nodesBelow(value, maxElements) : std::nullopt;
  if (!nodes)
    return std::nullopt;
  std::unordered_map<const Value *, HostTensor> values;
  for (const Node *node : *nodes) {
    if (node->op() == Op::constant) {
      const Type &type = node->result()->type();
      values.emplace(node->result(), hostTensorOf(node->get<ConstantAttributes>().value, type));
      continue;
    }
    std::vector<const HostTensor *> operands;
    std::vector<Type> types;
    for (const Value *operand : node->operands())
      operands.push_back(&values.at(operand));
    for (unsigned i = 0; i < node->resultCount(); ++i)
      types.push_back(node->result(i)->type());
    std::vector<HostTensor> results = evaluatePure(node->op(), node->attributes(), operands, types);
    for (unsigned i = 0; i < node->resultCount(); ++i)
      values.emplace(node->result(i), std::move(results[i]));
  }
  return std::move(values.at(value));
}

const Node *constantBelow(const Value *value) {
  const Node *node = value->definer();
  if (node && node->op() == Op::broadcast)
    node = node->operand(0)->definer();
  return node && node->op() == Op::constant ? node : nullptr;
}

Shape computedShape(const Node &node) {
  const Type &type = node.result()->type();
  if (!isElementwise(node) || node.op() == Op::fused)
    return Shape(type.shape());
  Shape shape(type.rank(), 1);
  for (const Value *operand : node.operands()) {
    const Node *constant = constantBelow(operand);
    const Type &own = constant->result()->type();
    if (constant->get<ConstantAttributes>().value.isSplat())
      continue;
    for (int64_t fromEnd = 1; fromEnd <= own.rank(); ++fromEnd)
      shape[shape.size() - fromEnd] = std::max(shape[shape.size() - fromEnd], own.dim(-fromEnd));
  }
  // Dims of size 0 leave nothing to compute.
  return type.elements() == 0 ? Shape(type.shape()) : shape;
}

bool isWorthFolding(const Node &node) {
  constexpr int64_t few = int64_t(1) << 12;
  int64_t stored = 0, computed = node.result()->type().withShape(computedShape(node)).elements();
  for (const Value *operand : node.operands())
    stored += constantBelow(operand)->get<ConstantAttributes>().value.storedElements();
  for (unsigned i = 1; i < node.resultCount(); ++i)
    computed += node.result(i)->type().elements();
  return computed <= std::max(stored, few);
}

std::vector<HostTensor> evaluateOnConstants(const Node &node) {
  const Shape shape = computedShape(node);
  const bool isSmaller = llvm::ArrayRef<int64_t>(shape) != node.result()->type().shape();
  std::vector<HostTensor> tensors;
  tensors.reserve(node.operandCount());
  for (const Value *operand : node.operands()) {
    const Node *constant = constantBelow(operand);
    const Dense &dense = constant->get<ConstantAttributes>().value;
    const Type wanted = isSmaller ? operand->type().withShape(shape) : operand->type();
    const Type own = dense.isSplat() ? wanted : constant->result()->type();
    HostTensor tensor = hostTensorOf(dense, own);
    if (own != wanted) {
      const Attributes<ShapeAttributes> to(ShapeAttributes{Shape(wanted.shape())});
      tensor = evaluatePure(Op::broadcast, &to, {&tensor}, {wanted}).front();
    }
    tensors.push_back(std::move(tensor));
  }
  std::vector<const HostTensor *> operands;
  for (const HostTensor &tensor : tensors)
    operands.push_back(&tensor);
  std::vector<Type> types;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    types.push_back(isSmaller ? node.result(i)->type().withShape(shape) : node.result(i)->type());
  return evaluatePure(node.op(), node.attributes(), operands, types);
}

} // namespace fsdpc
