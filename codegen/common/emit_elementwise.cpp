// Elementwise ops and chains of them. The target writes their loops.
#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"

namespace fsdpc {

namespace {

void emitFused(SectionWriter &writer, const Node &node) {
  writer.program.dialect.emitLoops(writer, node, node.get<FusedAttributes>());
}

/// A lone elementwise op or random_uniform is a chain of one step.
void emitOne(SectionWriter &writer, const Node &node) {
  FusedAttributes attributes;
  attributes.shape = Shape(node.result()->type().shape());
  attributes.body.operandCount = static_cast<int32_t>(node.operandCount());
  Expression::Step step;
  step.op = node.op();
  step.dtype = node.result()->type().dtype();
  for (unsigned i = 0; i < node.operandCount(); ++i)
    step.arguments.push_back(static_cast<int32_t>(i));
  if (node.op() == Op::randomUniform)
    step.immediates = immediatesOf(node.get<RandomUniformAttributes>());
  attributes.body.yields.push_back(attributes.body.operandCount);
  attributes.body.steps.push_back(std::move(step));
  writer.program.dialect.emitLoops(writer, node, attributes);
}

std::optional<std::string> unsupportedFused(const Node &node) {
  const Expression &body = node.get<FusedAttributes>().body;
  for (const Expression::Step &step : body.steps)
    if (step.op == Op::randomUniform &&
        (step.arguments[0] >= body.operandCount || step.arguments[1] >= body.operandCount))
      return "random numbers from a computed seed or step";
  return std::nullopt;
}

} // namespace

namespace emitters {

const Emitter elementwise = {emitOne, Elements::arithmetic};
const Emitter randomUniform = {emitOne, Elements::arithmetic};
const Emitter fused = {emitFused, Elements::arithmetic, unsupportedFused};

} // namespace emitters

} // namespace fsdpc
