#include "ir/ops/attributes.h"
#include "passes/graph/canonicalize.h"
#include "passes/graph/match.h"

namespace fsdpc {

namespace {

/// A simplified operand: its value and whether the transpose flag toggles.
struct Operand {
  Value *value = nullptr;
  bool turns = false;
};

/// Removes the exchange of the last two axes from a transpose. The remaining transpose keeps rows contiguous. Only a
/// transpose without other uses is split for this.
///     transpose %k {0,2,3,1}     ->     transpose %k {0,2,1,3}, flag
Operand withoutTranspose(Value *operand, Builder &builder) {
  Node *transpose = definedBy(operand, Op::transpose);
  if (!transpose)
    return {};
  Shape rest = transpose->get<TransposeAttributes>().permutation;
  size_t rank = rest.size();
  if (rest[rank - 2] != static_cast<int64_t>(rank) - 1)
    return {};
  std::swap(rest[rank - 2], rest[rank - 1]);
  bool isExchangeOnly = true;
  for (size_t i = 0; i < rank; ++i)
    isExchangeOnly &= rest[i] == static_cast<int64_t>(i);
  if (!isExchangeOnly && !operand->hasOneUse())
    return {};
  return {builder.transpose(transpose->operand(0), rest), true};
}

/// A matrix that is repeated over the batch is replaced by the single matrix, if the other operand has the batch dims.
Operand withoutBatch(Value *operand, const Value *other, Builder &builder) {
  Node *broadcast = definedBy(operand, Op::broadcast);
  const Type &type = operand->type();
  if (!broadcast || type.rank() <= 2 || other->type().rank() <= 2)
    return {};
  Value *matrix = broadcast->operand(0);
  if (matrix->type().rank() < 2 || matrix->type().dim(-1) != type.dim(-1) || matrix->type().dim(-2) != type.dim(-2) ||
      matrix->type().elements() != type.dim(-1) * type.dim(-2))
    return {};
  return {builder.reshape(matrix, {type.dim(-2), type.dim(-1)}), false};
}

} // namespace

Value *canonicalizeMatmul(Node &node, Builder &builder) {
  for (unsigned i = 0; i < 2; ++i) {
    Operand simpler = withoutTranspose(node.operand(i), builder);
    if (!simpler.value)
      simpler = withoutBatch(node.operand(i), node.operand(1 - i), builder);
    if (!simpler.value)
      continue;
    MatmulAttributes attributes = node.get<MatmulAttributes>();
    (i == 0 ? attributes.transposeA : attributes.transposeB) ^= simpler.turns;
    llvm::SmallVector<Value *, 4> operands = node.operands();
    operands[i] = simpler.value;
    return builder.create(Op::matmul, operands, attributes)->result();
  }
  return nullptr;
}

} // namespace fsdpc
