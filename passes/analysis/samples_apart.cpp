#include "passes/analysis/samples_apart.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/analysis/batch_axis.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

namespace {

/// The nodes that compute the loss terms or an output with samples.
llvm::DenseSet<const Node *> neededNodes(const Module &module, const Function &forward) {
  llvm::DenseSet<const Node *> needed;
  llvm::SmallVector<const Node *, 16> open;
  auto need = [&](const Value *value) {
    if (value->definer() && needed.insert(value->definer()).second)
      open.push_back(value->definer());
  };
  const Node &ret = *forward.returnNode();
  for (unsigned i = 0; i < ret.operandCount(); ++i) {
    bool isLoss = ret.get<ReturnAttributes>().names[i] == module.facts.modelLossOutput;
    if (ret.operand(i)->type().rank() > 0 && !isLoss)
      need(ret.operand(i));
  }
  while (!open.empty())
    for (const Value *operand : open.pop_back_val()->operands())
      need(operand);
  return needed;
}

std::string describe(const Node &node) {
  llvm::StringRef name = llvm::StringRef(node.source).rsplit('|').second;
  return name.empty() ? infoOf(node).name.str() : name.str();
}

llvm::Error refuse(const Node &node, const llvm::Twine &why) {
  return llvm::createStringError("--deterministic world: " + describe(node) + why +
                                 "; only --deterministic strategy works for this model");
}

/// Float scalar constants among the needed nodes.
std::vector<const Node *> numbersOf(const Function &forward, const llvm::DenseSet<const Node *> &needed) {
  std::vector<const Node *> numbers;
  for (const Node *node : forward)
    if (node->op() == Op::constant && needed.contains(node) && isFloat(node->result()->type().dtype()) &&
        node->get<ConstantAttributes>().value.isSplat())
      numbers.push_back(node);
  return numbers;
}

double numberOf(const Node &constant) { return constant.get<ConstantAttributes>().value.at(0); }

llvm::Error checkMixing(const Function &forward, const llvm::DenseSet<const Node *> &needed) {
  BatchAxis batch(forward);
  auto hasSamples = [&](const Value *value) { return batch.of(value).has_value(); };
  for (const Node *node : forward) {
    if (node->op() == Op::batchNorm && needed.contains(node) && node->get<BatchNormAttributes>().training)
      return refuse(*node, " normalises with the statistics of the batch");
    if (node->op() == Op::randomUniform || !needed.contains(node) || llvm::none_of(node->operands(), hasSamples))
      continue;
    for (unsigned i = 0; i < node->resultCount(); ++i)
      if (!hasSamples(node->result(i)))
        return refuse(*node,
                      " mixes the samples of the batch, or puts them where the compiler does not see them apart");
  }
  return llvm::Error::success();
}

/// Rows that depend on no sample are the same for every sample: the graph of one sample has one such row, as it would
/// for a result without samples.
llvm::Error checkResults(const Function &forwardOfOne, const Function &forward) {
  BatchAxis batch(forward);
  const Node &retOfOne = *forwardOfOne.returnNode(), &ret = *forward.returnNode();
  for (unsigned i = 0; i < std::min(ret.operandCount(), retOfOne.operandCount()); ++i) {
    const Value *result = ret.operand(i);
    if (result->type() != retOfOne.operand(i)->type() && result->definer() && !batch.of(result) &&
        !batch.isLost(result))
      return refuse(*result->definer(), " has a row per sample that depends on no sample");
  }
  return llvm::Error::success();
}

} // namespace

llvm::Error checkSeparateSamples(const Module &one, const Module &batch) {
  const Function &forwardOfOne = *one.function(FunctionKind::forward);
  const Function &forward = *batch.function(FunctionKind::forward);
  llvm::DenseSet<const Node *> needed = neededNodes(batch, forward);
  if (llvm::Error error = checkMixing(forward, needed))
    return error;
  if (llvm::Error error = checkResults(forwardOfOne, forward))
    return error;
  std::vector<const Node *> ofBatch = numbersOf(forward, needed);
  std::vector<const Node *> ofOne = numbersOf(forwardOfOne, neededNodes(one, forwardOfOne));
  for (size_t i = 0; i < ofBatch.size(); ++i)
    if (i >= ofOne.size() || numberOf(*ofBatch[i]) != numberOf(*ofOne[i]))
      return refuse(*ofBatch[i], " has a number that depends on the size of the batch");
  return llvm::Error::success();
}

} // namespace fsdpc
