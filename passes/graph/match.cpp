#include "passes/graph/match.h"

#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

namespace fsdpc {

namespace {

// After canonicalize chains have one or two nodes. The limit is for graphs that were not canonicalized.
constexpr int longestChain = 8;

} // namespace

Node *definedBy(const Value *value, Op op) {
  Node *node = value->definer();
  return node && node->op() == op ? node : nullptr;
}

const Dense *constantOf(const Value *value) {
  const Node *node = definedBy(value, Op::constant);
  return node ? &node->get<ConstantAttributes>().value : nullptr;
}

Scaled takeScaleOff(Value *value, int maxSteps) {
  Scaled scaled{value};
  for (int i = 0; i < maxSteps; ++i) {
    const Node *node = scaled.base->definer();
    if (!node)
      return scaled;
    std::optional<double> right, left;
    if (node->operandCount() == 2) {
      right = splatOf(node->operand(1));
      left = splatOf(node->operand(0));
    }
    if (node->op() == Op::mul && (right || left)) {
      scaled.factor *= right.value_or(left.value_or(1));
      scaled.base = node->operand(right ? 0 : 1);
    } else if (node->op() == Op::div && right && *right != 0) {
      scaled.factor /= *right;
      scaled.base = node->operand(0);
    } else if (node->op() == Op::neg) {
      scaled.factor = -scaled.factor;
      scaled.base = node->operand(0);
    } else {
      return scaled;
    }
  }
  return scaled;
}

Value *belowReshapes(Value *value) {
  for (int i = 0; i < longestChain; ++i)
    if (Node *node = definedBy(value, Op::reshape))
      value = node->operand(0);
  return value;
}

Value *belowBroadcasts(Value *value) {
  for (int i = 0; i < longestChain; ++i)
    if (Node *node = definedBy(value, Op::broadcast))
      value = node->operand(0);
  return value;
}

const Value *belowBroadcasts(const Value *value) { return belowBroadcasts(const_cast<Value *>(value)); }

bool isNear(double value, double expected, double tolerance) {
  return std::abs(value - expected) <= tolerance * std::abs(expected);
}

GradientPaths::GradientPaths(const Function &function) {
  for (const Node *node : function) {
    bool isReached = llvm::any_of(node->operands(), [&](const Value *operand) { return reached.contains(operand); });
    if (node->op() == Op::read) {
      const State *state = stateOf(*node);
      const Parameter *parameter = state ? function.module()->parameter(state->name) : nullptr;
      isReached = state && state->role == StateRole::parameter && (!parameter || parameter->trainable);
    }
    for (unsigned i = 0; isReached && i < node->resultCount(); ++i)
      if (isFloat(node->result(i)->type().dtype()))
        reached.insert(node->result(i));
  }
}

void GradientPaths::replace(const Value *value, const Value *replacement) {
  bool isReached = reached.erase(value);
  if (isReached)
    reached.insert(replacement);
  else
    reached.erase(replacement);
}

} // namespace fsdpc
