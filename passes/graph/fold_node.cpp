#include "ir/eval/known_value.h"
#include "ir/ops/attributes.h"
#include "passes/graph/match.h"
#include "passes/graph/rewrite.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace fsdpc {

namespace {

constexpr int64_t largestOperand = int64_t(1) << 22;
// The evaluator's values are f64.
constexpr double largestExactInteger = 0x1p53;

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
  return isWorthFolding(node) && llvm::all_of(node.operands(), [](const Value *operand) {
           return operand->type().elements() <= largestOperand && isExact(denseBelow(operand));
         });
}

Replacement foldElements(const Node &node, Builder &builder) {
  Replacement constants;
  for (auto [i, result] : llvm::enumerate(evaluateOnConstants(node))) {
    Value *constant = builder.constant(result.type, denseOf(result));
    constants.push_back(builder.broadcast(constant, node.result(static_cast<unsigned>(i))->type().shape()));
  }
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
