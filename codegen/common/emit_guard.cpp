// Ops that guard an update: norms of gradients, spike guard, loss scale.
#include "codegen/common/emitter.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

namespace {

constexpr size_t maxAccumulators = 8; ///< as in runtime/cuda/kernels/guard.cu

/// squareSum(c, {{t0, 2112}, {t1, 512}}, t2);
void emitSquareSum(SectionWriter &writer, const Node &node) {
  std::string tensors;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    std::string tensor = writer.operand(node, i);
    tensors += (i ? ", {" : "{") + tensor + ", " + std::to_string(node.operand(i)->type().elements()) + "}";
  }
  writer.call("squareSum", "{" + tensors + "}", {writer.define(node.result())});
}

size_t accumulatorsOf(const Node &clip) {
  const auto &attributes = clip.get<ClipNormAttributes>();
  return clip.operandCount() - 1 - attributes.bounded - attributes.scaled;
}

void emitClipNorm(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<ClipNormAttributes>();
  const size_t sums = accumulatorsOf(node);
  std::vector<std::string> operands;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    operands.push_back(writer.operand(node, i));
  std::string list;
  for (size_t i = 0; i < sums; ++i)
    list += (i ? ", " : "") + operands[i];
  CppFields numbers;
  if (attributes.bounded)
    numbers.text("maxNorm", operands[sums + 1]);
  if (attributes.scaled)
    numbers.text("lossScale", operands.back());
  std::vector<std::string> arguments = {"{" + list + "}", operands[sums]};
  for (unsigned i = 0; i < node.resultCount(); ++i)
    arguments.push_back(writer.define(node.result(i)));
  writer.call("clipNorm", numbers.str(), arguments);
}

/// Operands, then results.
std::vector<std::string> allPointers(SectionWriter &writer, const Node &node) {
  std::vector<std::string> pointers;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    pointers.push_back(writer.operand(node, i));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    pointers.push_back(writer.define(node.result(i)));
  return pointers;
}

void emitSpikeGuard(SectionWriter &writer, const Node &node) {
  std::vector<std::string> pointers = allPointers(writer, node);
  writer.call("spikeGuard", pointers.front(), llvm::ArrayRef(pointers).drop_front());
}

void emitAdjustLossScale(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<LossScaleAttributes>();
  CppFields rule;
  rule.number("window", attributes.window).number("hysteresis", attributes.hysteresis);
  rule.real("minimum", attributes.minimum);
  writer.call("adjustLossScale", rule.str(), allPointers(writer, node));
}

std::optional<std::string> tooManyAccumulators(const Node &node) {
  if (accumulatorsOf(node) <= maxAccumulators)
    return std::nullopt;
  return "gradients are split in more than " + std::to_string(maxAccumulators) + " ways";
}

} // namespace

namespace emitters {

const Emitter squareSum = {emitSquareSum};
const Emitter clipNorm = {emitClipNorm, Elements::any, tooManyAccumulators};
const Emitter spikeGuard = {emitSpikeGuard};
const Emitter adjustLossScale = {emitAdjustLossScale};

} // namespace emitters

} // namespace fsdpc
