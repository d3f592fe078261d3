#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "passes/graph/match.h"
#include "passes/graph/rewrite.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace fsdpc {

namespace {

// Results up to this size may be larger than what they are made from: beyond it, ranges, masks and tables of angles
// stay formulas.
constexpr int64_t smallResult = int64_t(1) << 12;
constexpr int64_t largestOperand = int64_t(1) << 22;
// The evaluator's values are f64.
constexpr double largestExactInteger = 0x1p53;

const Node *constantBelow(const Value *value) {
  const Node *node = value->definer();
  if (node && node->op() == Op::broadcast)
    node = node->operand(0)->definer();
  return node && node->op() == Op::constant ? node : nullptr;
}

const Dense &denseBelow(const Value *value) { return constantBelow(value)->get<ConstantAttributes>().value; }

bool isExact(const Dense &dense) {
  if (dense.dtype() != DType::i64)
    return true;
  for (int64_t i = 0; i < dense.storedElements(); ++i)
    if (std::abs(static_cast<double>(dense.integerAt(i))) > largestExactInteger)
      return false;
  return true;
}

bool isCandidate(const Node &node) {
  if (!infoOf(node).has(pure) || infoOf(node).has(usesEnvironment) || node.op() == Op::constant ||
      node.op() == Op::randomUniform || node.op() == Op::fused || node.resultCount() == 0)
    return false;
  return llvm::all_of(node.operands(), [](const Value *operand) { return constantBelow(operand); });
}

/// True for ops that only move elements: a property of all elements of the operand also holds for the result.
bool movesElements(Op op) {
  return op == Op::broadcast || op == Op::reshape || op == Op::transpose || op == Op::slice || op == Op::copy;
}

bool areSplats(const Node &node) {
  return llvm::all_of(node.operands(), [](const Value *operand) { return denseBelow(operand).storedElements() == 1; });
}

Replacement foldSplats(const Node &node, Builder &builder) {
  const Type &type = node.result()->type();
  if (movesElements(node.op()) && denseBelow(node.operand(0)).isSplat())
    return {builder.constant(type, denseBelow(node.operand(0)))};
  std::vector<HostTensor> scalars;
  for (const Value *operand : node.operands()) {
    if (!isExact(denseBelow(operand)))
      return {};
    scalars.emplace_back(operand->type().withShape({}), denseBelow(operand).at(0));
  }
  if (movesElements(node.op()))
    return {builder.constant(type, scalars[0].values[0])};
  std::vector<const HostTensor *> operands;
  for (const HostTensor &scalar : scalars)
    operands.push_back(&scalar);
  double result = evaluatePure(node.op(), node.attributes(), operands, {type.withShape({})}).front().values[0];
  if (type.dtype() == DType::i64 && !(std::abs(result) <= largestExactInteger))
    return {};
  return {builder.constant(type, result)};
}

bool isSmallEnough(const Node &node) {
  int64_t stored = 0, results = 0;
  for (const Value *operand : node.operands())
    stored += denseBelow(operand).storedElements();
  for (unsigned i = 0; i < node.resultCount(); ++i)
    results += node.result(i)->type().elements();
  if (results > std::max(stored, smallResult))
    return false;
  return llvm::all_of(node.operands(), [](const Value *operand) {
    return operand->type().elements() <= largestOperand && isExact(denseBelow(operand));
  });
}

HostTensor valueOf(const Value *value) {
  const Node *constant = constantBelow(value);
  HostTensor tensor = hostTensorOf(constant->get<ConstantAttributes>().value, constant->result()->type());
  if (constant->result() == value)
    return tensor;
  return evaluatePure(Op::broadcast, value->definer()->attributes(), {&tensor}, {value->type()}).front();
}

Replacement foldElements(const Node &node, Builder &builder) {
  std::vector<HostTensor> tensors;
  tensors.reserve(node.operandCount());
  for (const Value *operand : node.operands())
    tensors.push_back(valueOf(operand));
  std::vector<const HostTensor *> operands;
  for (const HostTensor &tensor : tensors)
    operands.push_back(&tensor);
  std::vector<Type> types;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    types.push_back(node.result(i)->type());
  Replacement constants;
  for (HostTensor &result : evaluatePure(node.op(), node.attributes(), operands, types))
    constants.push_back(builder.constant(result.type, denseOf(result)));
  return constants;
}

} // namespace

Replacement foldNode(const Node &node, Builder &builder) {
  if (!isCandidate(node))
    return {};
  bool hasOperands = node.operandCount() > 0;
  if (hasOperands && areSplats(node) && (movesElements(node.op()) || isElementwise(node)))
    return foldSplats(node, builder);
  if (node.op() == Op::broadcast)
    return {};
  if (node.op() == Op::reshape)
    if (const Dense *dense = constantOf(node.operand(0)))
      return {builder.constant(node.result()->type(), *dense)};
  return isSmallEnough(node) ? foldElements(node, builder) : Replacement();
}

} // namespace fsdpc
