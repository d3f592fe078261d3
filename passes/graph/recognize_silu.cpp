#include "passes/graph/recognizers.h"

namespace fsdpc {

Value *recognizeSilu(Node &node, Builder &builder) {
  if (node.op() != Op::mul)
    return nullptr;
  for (unsigned i = 0; i < 2; ++i)
    if (Node *gate = definedBy(node.operand(i), Op::sigmoid); gate && gate->operand(0) == node.operand(1 - i))
      return builder.unary(Op::silu, gate->operand(0));
  return nullptr;
}

} // namespace fsdpc
