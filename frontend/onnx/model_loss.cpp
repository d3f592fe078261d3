#include "frontend/onnx/model_loss.h"

#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"

namespace fsdpc {

namespace {

struct LossEnd {
  bool isMean = false;
  Value *terms = nullptr;
  Value *counts = nullptr;
};

std::optional<double> numberOf(const Value *value) {
  const Node *node = value->definer();
  if (!node || node->op() != Op::constant || !node->get<ConstantAttributes>().value.isSplat())
    return std::nullopt;
  return node->get<ConstantAttributes>().value.at(0);
}

/// The value before nodes that change only its shape or float type.
Value *throughReshapes(Value *value) {
  while (const Node *node = value->definer()) {
    bool isCast = node->op() == Op::cast && isFloat(node->operand(0)->type().dtype());
    if (node->op() != Op::reshape && !isCast)
      break;
    value = node->operand(0);
  }
  return value;
}

/// The operand of a sum over all elements; null if the value is no such sum.
Value *summand(Value *value) {
  const Node *node = throughReshapes(value)->definer();
  bool isTotal = node && node->op() == Op::reduceSum && node->result()->type().elements() == 1;
  return isTotal ? node->operand(0) : nullptr;
}

/// The counts that are summed. The sum may be kept from zero: max(sum, 1).
Value *countsBelow(Value *value) {
  const Node *node = throughReshapes(value)->definer();
  if (node && node->op() == Op::maximum)
    for (unsigned i = 0; i < 2; ++i)
      if (numberOf(node->operand(i)))
        return summand(node->operand(1 - i));
  return summand(value);
}

/// sum(terms) * factor = sum(terms) / sum(counts) with equal counts, which stays true when the batch grows.
LossEnd scaledSum(Builder &builder, Value *terms, double factor) {
  double count = 1 / (factor * static_cast<double>(terms->type().elements()));
  return {true, terms, builder.constant(Type(DType::f32, terms->type().shape()), count)};
}

std::optional<LossEnd> lossEnd(Builder &builder, Value *output) {
  if (Value *terms = summand(output))
    return LossEnd{false, terms, builder.constant(Type(DType::f32, terms->type().shape()), 1)};
  const Node *node = throughReshapes(output)->definer();
  if (!node || (node->op() != Op::mul && node->op() != Op::div))
    return std::nullopt;
  for (unsigned i = 0; i < (node->op() == Op::mul ? 2u : 1u); ++i) {
    Value *terms = summand(node->operand(i));
    std::optional<double> number = numberOf(node->operand(1 - i));
    if (terms && number && *number > 0)
      return scaledSum(builder, terms, node->op() == Op::mul ? *number : 1 / *number);
  }
  Value *terms = summand(node->operand(0)), *counts = node->op() == Op::div ? countsBelow(node->operand(1)) : nullptr;
  if (terms && counts)
    return LossEnd{true, terms, builder.cast(counts, DType::f32)};
  return std::nullopt;
}

bool mayBeLoss(const Value *value) {
  return value->definer() && isFloat(value->type().dtype()) && value->type().elements() == 1;
}

} // namespace

void appendModelLoss(Module &module, Builder &builder, llvm::SmallVectorImpl<Value *> &results,
                     std::vector<std::string> &names) {
  size_t outputs = results.size();
  for (size_t i = 0; i < outputs; ++i) {
    if (!mayBeLoss(results[i]))
      continue;
    std::optional<LossEnd> end = lossEnd(builder, results[i]);
    if (!end) {
      llvm::StringRef source = results[i]->definer()->source;
      module.facts.modelLossError = "output '" + names[i] + "' looks like a loss, but node '" +
                                    source.split('|').second.str() + "' that computes it is neither a mean nor a sum";
      continue;
    }
    module.facts.modelLossError.clear();
    module.facts.modelLoss = end->isMean ? LossReduction::mean : LossReduction::sum;
    module.facts.modelLossOutput = names[i];
    results.append({builder.cast(end->terms, DType::f32), end->counts});
    names.insert(names.end(), {names::lossTerms.str(), names::lossCounts.str()});
    return;
  }
}

} // namespace fsdpc
