#include "ir/ops/attributes.h"
#include "passes/graph/canonicalize.h"
#include "passes/graph/match.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace fsdpc {

namespace {

bool isNumber(const Value *value, double number) {
  std::optional<double> splat = splatOf(value);
  return splat && *splat == number;
}

// ---- Two operands, the second one a constant

Value *simplifyPower(Value *x, double exponent, Builder &builder) {
  if (exponent == 1)
    return x;
  if (exponent == 2)
    return builder.mul(x, x);
  if (exponent == 3)
    return builder.mul(builder.mul(x, x), x);
  if (!isFloat(x->type().dtype()))
    return nullptr;
  if (exponent == 0.5)
    return builder.unary(Op::sqrt, x);
  if (exponent == -0.5)
    return builder.unary(Op::rsqrt, x);
  if (exponent == -1)
    return builder.div(builder.constantLike(x, 1), x);
  return nullptr;
}

Value *simplifyWithNumber(const Node &node, double number, Builder &builder) {
  Value *x = node.operand(0);
  switch (node.op()) {
  case Op::add:
  case Op::sub: return number == 0 ? x : nullptr;
  case Op::mul:
  case Op::div: return number == 1 ? x : nullptr;
  case Op::pow: return simplifyPower(x, number, builder);
  case Op::logicalAnd: return number == 0 ? node.operand(1) : x;
  case Op::logicalOr: return number == 0 ? x : node.operand(1);
  case Op::logicalXor: return number == 0 ? x : builder.unary(Op::logicalNot, x);
  default: return nullptr;
  }
}

Value *simplifyBinary(Node &node, Builder &builder) {
  // In place: the same node remains, so nothing has to be visited again.
  if (infoOf(node).has(commutative) && splatOf(node.operand(0)) && !splatOf(node.operand(1))) {
    Value *number = node.operand(0), *other = node.operand(1);
    node.setOperand(0, other);
    node.setOperand(1, number);
  }
  if (std::optional<double> number = splatOf(node.operand(1)))
    return simplifyWithNumber(node, *number, builder);
  if (node.op() == Op::div && isNumber(node.operand(0), 1))
    if (Node *root = definedBy(node.operand(1), Op::sqrt))
      return builder.unary(Op::rsqrt, root->operand(0));
  return nullptr;
}

// ---- One and three operands

/// True if distinct values of `from` stay distinct in `to`.
bool isLossless(DType from, DType to) {
  if (from == to || from == DType::boolean)
    return true;
  if (isFloat(from))
    return to == DType::f64 || (to == DType::f32 && from != DType::f64);
  if (from == DType::u8)
    return to != DType::boolean;
  return from == DType::i32 && (to == DType::i64 || to == DType::f64);
}

Value *simplifyCast(const Node &node) {
  Value *x = node.operand(0);
  DType to = node.get<CastAttributes>().to;
  if (x->type().dtype() == to)
    return x;
  Node *inner = definedBy(x, Op::cast);
  if (!inner || inner->operand(0)->type().dtype() != to || !isLossless(to, x->type().dtype()))
    return nullptr;
  return inner->operand(0);
}

Value *simplifySelect(const Node &node, Builder &builder) {
  if (std::optional<double> condition = splatOf(node.operand(0)))
    return node.operand(*condition != 0 ? 1 : 2);
  if (node.operand(1) == node.operand(2))
    return node.operand(1);
  if (Node *inverse = definedBy(node.operand(0), Op::logicalNot))
    return builder.select(inverse->operand(0), node.operand(2), node.operand(1));
  return nullptr;
}

/// neg(neg(x)), not(not(x))
Value *simplifyInvolution(const Node &node) {
  Node *inner = definedBy(node.operand(0), node.op());
  return inner ? inner->operand(0) : nullptr;
}

// ---- Broadcasts

/// The shape that all operands except scalars are broadcast from, if it is unique and smaller than the node's.
const Type *sharedSource(const Node &node) {
  const Type *source = nullptr;
  for (const Value *operand : node.operands()) {
    if (std::optional<double> number = splatOf(operand)) {
      // Rebuilt below from a double.
      if (std::abs(*number) > 0x1p53 && isInteger(operand->type().dtype()))
        return nullptr;
      continue;
    }
    const Node *broadcast = definedBy(operand, Op::broadcast);
    if (!broadcast || (source && source->shape() != broadcast->operand(0)->type().shape()))
      return nullptr;
    source = &broadcast->operand(0)->type();
  }
  return source && source->elements() < node.result()->type().elements() ? source : nullptr;
}

///     %b = broadcast %x; %y = exp %b     ->     %e = exp %x; %y = broadcast %e
Value *computeBeforeBroadcast(const Node &node, Builder &builder) {
  const Type *source = node.operandCount() > 0 ? sharedSource(node) : nullptr;
  if (!source)
    return nullptr;
  Shape shape(source->shape());
  llvm::SmallVector<Value *, 4> operands;
  for (Value *operand : node.operands())
    if (std::optional<double> number = splatOf(operand))
      operands.push_back(builder.constant(operand->type().withShape(shape), *number));
    else
      operands.push_back(operand->definer()->operand(0));
  std::unique_ptr<AttributesBase> attributes = node.attributes() ? node.attributes()->clone() : nullptr;
  Value *small = builder.create(node.op(), operands, std::move(attributes))->result();
  return builder.broadcast(small, node.result()->type().shape());
}

Value *simplifyForm(Node &node, Builder &builder) {
  switch (node.op()) {
  case Op::cast: return simplifyCast(node);
  case Op::select: return simplifySelect(node, builder);
  case Op::neg:
  case Op::logicalNot: return simplifyInvolution(node);
  default: return node.operandCount() == 2 ? simplifyBinary(node, builder) : nullptr;
  }
}

} // namespace

Value *canonicalizeElementwise(Node &node, Builder &builder) {
  if (node.op() == Op::randomUniform || node.op() == Op::fused)
    return nullptr;
  if (Value *value = simplifyForm(node, builder))
    return value;
  return computeBeforeBroadcast(node, builder);
}

} // namespace fsdpc
