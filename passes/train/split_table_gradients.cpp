#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"
#include "passes/passes.h"
#include "passes/shard/placement.h"
#include "passes/shard/row_tables.h"

namespace fsdpc {

namespace {

/// batch_sum(add(others, scatter_add)), in either order, of a gradient; all null if it is something else.
struct Joined {
  Node *sum = nullptr, *add = nullptr;
  Value *others = nullptr, *lookup = nullptr;
};

Joined joinedIn(const Value &gradient) {
  Node *sum = gradient.definer();
  Node *add = sum && sum->op() == Op::batchSum && sum->get<BatchSumAttributes>().ranks == 0 ? sum->operand(0)->definer()
                                                                                            : nullptr;
  if (!add || add->op() != Op::add || !add->result()->hasOneUse())
    return {};
  for (unsigned i = 0; i < 2; ++i) {
    Value *lookup = add->operand(i);
    if (lookupAddedBy(*lookup))
      return {sum, add, add->operand(1 - i), lookup};
  }
  return {};
}

void split(const Joined &joined) {
  Builder builder(*joined.sum->function(), joined.sum);
  builder.inherit(*joined.sum);
  auto sumOf = [&](Value *value) {
    return builder.create(Op::batchSum, {value}, joined.sum->get<BatchSumAttributes>())->result();
  };
  Value *others = sumOf(joined.others), *total = builder.add(others, sumOf(joined.lookup));
  total->setName(joined.sum->result()->name());
  joined.sum->result()->replaceAllUsesWith(total);
  joined.sum->erase();
  joined.add->erase();
}

llvm::Error run(Module &module, const PassContext &context) {
  if (context.options.sumsRanksFirst || context.options.splitSamples || module.microSteps > 1)
    return llvm::Error::success();
  // The mesh of the train stage does not depend on the strategy.
  llvm::Expected<std::vector<MeshAxis>> mesh = meshFor(module, context.options);
  if (!mesh)
    return mesh.takeError();
  std::swap(module.mesh, *mesh);
  const RowTables tables = RowTables::decide(module);
  std::swap(module.mesh, *mesh);
  const Node &ret = *module.function(FunctionKind::microStep)->returnNode();
  for (unsigned i = 0; i < ret.operandCount(); ++i) {
    llvm::StringRef parameter = ret.get<ReturnAttributes>().names[i];
    bool isTable = parameter.consume_front(names::gradientPrefix) && tables.contains(parameter);
    bool keeps = isTable && keepsGradients(module.units[module.unitIndex(module.parameter(parameter)->unit)]);
    if (Joined joined = isTable && !keeps ? joinedIn(*ret.operand(i)) : Joined(); joined.sum)
      split(joined);
  }
  return llvm::Error::success();
}

} // namespace

const Pass splitTableGradients = {"split_table_gradients", Stage::train, Stage::train, true, run,
                                  FunctionKind::microStep};

} // namespace fsdpc
