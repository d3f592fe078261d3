// --frozen_dtype: parameters that do not train are stored, gathered and exported in 16 bits. There is no f32 copy of
// them: a node that needs f32 reads the rounded value.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "ir/usage_error.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

bool isNarrowed(const Parameter &parameter) {
  return !parameter.trainable && !parameter.isBuffer && parameter.type.dtype() == DType::f32;
}

/// Reads the stored value. Casts to its type disappear; other users get it promoted.
void replaceRead(Node &read, const State &state) {
  Builder builder(*read.function(), &read);
  builder.inherit(read);
  Value *stored = builder.readState(state), *wide = nullptr;
  stored->setName(read.result()->name());
  while (Use *use = read.result()->uses()) {
    Node &user = *use->user();
    const bool rounds = user.op() == Op::cast && user.result()->type().dtype() == stored->type().dtype();
    if (!rounds) {
      wide = wide ? wide : builder.cast(stored, DType::f32);
      user.setOperand(use->index(), wide);
      continue;
    }
    user.result()->replaceAllUsesWith(stored);
    user.erase();
  }
  read.erase();
}

llvm::Error run(Module &module, const PassContext &context) {
  const DType low = context.options.frozenDType;
  if (low == DType::f32)
    return llvm::Error::success();
  bool changes = false;
  for (Parameter &parameter : module.parameters) {
    State *state = module.state(parameter.name);
    if (!state || !isNarrowed(parameter))
      continue;
    parameter.fileDType = parameter.type.dtype();
    parameter.type = state->type = parameter.type.withDType(low);
    changes = true;
  }
  if (!changes)
    return llvm::make_error<UsageError>("--frozen_dtype: changes nothing, for every parameter trains");
  for (Node *node : *module.function(FunctionKind::forward)) {
    const State *state = node->op() == Op::read ? stateOf(*node) : nullptr;
    if (state && state->role == StateRole::parameter && !(state->type == node->result()->type()))
      replaceRead(*node, *state);
  }
  return llvm::Error::success();
}

} // namespace

const Pass narrowFrozen = {"narrow_frozen", Stage::graph, Stage::graph, /*optional=*/false, run, FunctionKind::forward};

} // namespace fsdpc
