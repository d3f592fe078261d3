#include "codegen/common/index_limits.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

namespace {

/// The result holds elements of the operand, unchanged but for their width.
bool keepsElements(Op op) {
  switch (op) {
  case Op::reshape:
  case Op::transpose:
  case Op::slice:
  case Op::broadcast:
  case Op::copy:
  case Op::cast: return true;
  default: return false;
  }
}

/// A chain of nothing but casts.
bool isCastChain(const Node &node) {
  if (node.op() != Op::fused)
    return false;
  const Expression &body = node.get<FusedAttributes>().body;
  return body.operandCount == 1 &&
         llvm::all_of(body.steps, [](const Expression::Step &step) { return step.op == Op::cast; });
}

std::optional<IndexLimit> limitAt(const Node &node, unsigned operand) {
  switch (node.op()) {
  case Op::gather:
    if (operand == 1)
      return IndexLimit{node.operand(0)->type().dim(node.get<AxisAttributes>().axis), std::nullopt};
    return std::nullopt;
  case Op::crossEntropy:
  case Op::nll:
    if (operand == 1)
      return IndexLimit{node.operand(0)->type().dim(-1), node.get<LossAttributes>().ignoreIndex};
    return std::nullopt;
  default: return std::nullopt;
  }
}

} // namespace

llvm::StringMap<IndexLimit> indexLimits(const Module &module) {
  llvm::StringMap<IndexLimit> limits;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Argument &argument : function->arguments()) {
      if (argument.kind != ArgumentKind::input || !isInteger(argument.value->type().dtype()))
        continue;
      llvm::SmallVector<const Value *, 8> pending = {argument.value.get()};
      llvm::DenseSet<const Value *> seen;
      while (!pending.empty()) {
        const Value *value = pending.pop_back_val();
        if (!seen.insert(value).second)
          continue;
        for (const Use *use = value->uses(); use; use = use->next()) {
          const Node &user = *use->user();
          if (std::optional<IndexLimit> limit = limitAt(user, use->index())) {
            IndexLimit &known = limits.try_emplace(argument.name, *limit).first->second;
            known.limit = std::min(known.limit, limit->limit);
            if (known.ignored != limit->ignored)
              known.ignored = std::nullopt;
          }
          if (keepsElements(user.op()) || isCastChain(user))
            pending.push_back(user.result());
        }
      }
    }
  return limits;
}

} // namespace fsdpc
