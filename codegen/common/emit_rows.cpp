// Normalisation, rotary embedding, softmax, losses, reductions: kernels that walk rows.
#include "codegen/common/emitter.h"

namespace fsdpc {

namespace {

std::string normShape(const Node &node, const Type &x) {
  const auto &attributes = node.get<NormAttributes>();
  return CppFields()
      .number("rows", productOf(x.shape().take_front(attributes.axis)))
      .number("columns", productOf(x.shape().drop_front(attributes.axis)))
      .real("epsilon", attributes.epsilon)
      .str();
}

/// kernel(c, shape, operands..., results...[, workspace])
void emitPlain(SectionWriter &writer, const Node &node, llvm::StringRef kernel, llvm::StringRef shape,
               bool withWorkspace = false) {
  llvm::SmallVector<std::string, 12> arguments;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    arguments.push_back(writer.operand(node, i));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    arguments.push_back(writer.define(node.result(i)));
  if (withWorkspace)
    arguments.push_back(writer.workspace(node));
  writer.call(kernel, shape, arguments);
}

void emitLayerNorm(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "layerNorm", normShape(node, node.operand(0)->type()));
}
void emitLayerNormGrad(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "layerNormGrad", normShape(node, node.operand(1)->type()), true);
}
void emitRmsNorm(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "rmsNorm", normShape(node, node.operand(0)->type()));
}
void emitRmsNormGrad(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "rmsNormGrad", normShape(node, node.operand(1)->type()), true);
}

std::string channelShape(const Type &x) {
  return CppFields()
      .number("outer", x.dim(0), 1)
      .number("channels", x.dim(1), 1)
      .number("inner", productOf(x.shape().drop_front(2)), 1)
      .str();
}

void emitBatchStatistics(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "batchStatistics", channelShape(node.operand(0)->type()), true);
}
void emitBatchNormGrad(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "batchNormGrad", channelShape(node.operand(1)->type()), true);
}

/// For ops that the train stage lowers, so that none is left to emit.
void emitNothing(SectionWriter &, const Node &) {}
std::optional<std::string> writtenOut(const Node &) { return "it is written out in the train stage"; }

/// The axes before the last one, padded in front to three, and the stride of each in the tables.
std::string rotaryShape(const Node &node) {
  const Type &x = node.operand(0)->type(), &table = node.operand(1)->type();
  Shape dims(x.shape().drop_back()), strides(broadcastStridesOf(table.shape(), x.shape()));
  strides.pop_back();
  dims.insert(dims.begin(), 3 - dims.size(), 1);
  strides.insert(strides.begin(), 3 - strides.size(), 0);
  return CppFields()
      .text("dims", cppList(dims))
      .text("tableStrides", cppList(strides))
      .number("width", x.dim(-1))
      .flag("transposed", node.get<RotaryAttributes>().transposed)
      .str();
}
void emitRotary(SectionWriter &writer, const Node &node) { emitPlain(writer, node, "rotary", rotaryShape(node)); }

std::string axisShape(const Type &type, int64_t axis) {
  AxisSplit split = splitAt(type.shape(), axis);
  return CppFields()
      .number("outer", split.outer, 1)
      .number("count", split.count, 1)
      .number("inner", split.inner, 1)
      .str();
}

std::string softmaxShape(const Node &node) {
  return axisShape(node.operand(0)->type(), node.get<AxisAttributes>().axis);
}
void emitSoftmax(SectionWriter &writer, const Node &node) { emitPlain(writer, node, "softmax", softmaxShape(node)); }
void emitSoftmaxGrad(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "softmaxGrad", softmaxShape(node));
}
void emitLogSoftmax(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "logSoftmax", softmaxShape(node));
}
void emitLogSoftmaxGrad(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "logSoftmaxGrad", softmaxShape(node));
}

std::string lossShape(const Node &node, const Type &scores) {
  return lossText(productOf(scores.shape().drop_back()), scores.dim(-1), node.get<LossAttributes>());
}

void emitCrossEntropy(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "crossEntropy", lossShape(node, node.operand(0)->type()));
}
void emitCrossEntropyGrad(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "crossEntropyGrad", lossShape(node, node.operand(1)->type()));
}
void emitNll(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "nll", lossShape(node, node.operand(0)->type()));
}
/// The derivative needs the shape of the log-probabilities, not their values.
void emitNllGrad(SectionWriter &writer, const Node &node) {
  std::string dterms = writer.operand(node, 0), labels = writer.operand(node, 2), out = writer.define(node.result());
  writer.call("nllGrad", lossShape(node, node.operand(1)->type()), {dterms, labels, out});
}

std::string reduceShape(const Node &node) {
  llvm::ArrayRef<int64_t> dims = node.operand(0)->type().shape();
  const auto &attributes = node.get<ReduceAttributes>();
  std::string reduced = "{";
  for (size_t i = 0; i < dims.size(); ++i)
    reduced +=
        std::string(i ? ", " : "") + (llvm::is_contained(attributes.axes, static_cast<int64_t>(i)) ? "true" : "false");
  return CppFields()
      .number("rank", static_cast<int64_t>(dims.size()), 0)
      .text("dims", cppList(dims))
      .text("reduced", reduced + "}")
      .str();
}

void emitReduceSum(SectionWriter &writer, const Node &node) { emitPlain(writer, node, "reduceSum", reduceShape(node)); }
void emitReduceMax(SectionWriter &writer, const Node &node) { emitPlain(writer, node, "reduceMax", reduceShape(node)); }
void emitReduceMin(SectionWriter &writer, const Node &node) { emitPlain(writer, node, "reduceMin", reduceShape(node)); }
void emitReduceProd(SectionWriter &writer, const Node &node) {
  emitPlain(writer, node, "reduceProd", reduceShape(node));
}
void emitArgMax(SectionWriter &writer, const Node &node) { emitPlain(writer, node, "argMax", softmaxShape(node)); }

void emitCumulativeSum(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<CumulativeSumAttributes>();
  std::string shape = axisShape(node.operand(0)->type(), attributes.axis);
  shape += attributes.exclusive ? ", /*exclusive=*/true" : ", /*exclusive=*/false";
  shape += attributes.reverse ? ", /*reverse=*/true" : ", /*reverse=*/false";
  emitPlain(writer, node, "cumulativeSum", shape);
}

std::optional<std::string> unsupportedReduction(const Node &node) {
  DType dtype = node.operand(0)->type().dtype();
  if (dtype == DType::boolean)
    return "reductions of bool";
  if (node.operand(0)->type().rank() > 8)
    return "more than 8 dims";
  return std::nullopt;
}

} // namespace

std::string lossText(int64_t rows, int64_t classes, const LossAttributes &attributes, double softcap) {
  CppFields fields;
  fields.number("rows", rows).number("classes", classes).number("ignoreIndex", attributes.ignoreIndex, -100);
  if (attributes.labelSmoothing != 0)
    fields.real("labelSmoothing", attributes.labelSmoothing);
  if (softcap > 0)
    fields.text("softcap", cppLiteral(DType::f32, softcap));
  return fields.str();
}

namespace emitters {

const Emitter layerNorm = {emitLayerNorm, Elements::single};
const Emitter layerNormGrad = {emitLayerNormGrad, Elements::single};
const Emitter rmsNorm = {emitRmsNorm, Elements::single};
const Emitter rmsNormGrad = {emitRmsNormGrad, Elements::single};
const Emitter batchNorm = {emitNothing, Elements::any, writtenOut};
const Emitter batchNormGrad = {emitBatchNormGrad, Elements::single};
const Emitter batchStatistics = {emitBatchStatistics, Elements::single};
const Emitter updateStatistics = {emitNothing, Elements::any, writtenOut};
const Emitter rotary = {emitRotary, Elements::single};
const Emitter softmax = {emitSoftmax, Elements::single};
const Emitter softmaxGrad = {emitSoftmaxGrad, Elements::single};
const Emitter logSoftmax = {emitLogSoftmax, Elements::single};
const Emitter logSoftmaxGrad = {emitLogSoftmaxGrad, Elements::single};
const Emitter crossEntropy = {emitCrossEntropy, Elements::single};
const Emitter crossEntropyGrad = {emitCrossEntropyGrad, Elements::single};
const Emitter nll = {emitNll, Elements::single};
const Emitter nllGrad = {emitNllGrad, Elements::single};
const Emitter reduceSum = {emitReduceSum, Elements::arithmetic, unsupportedReduction};
const Emitter reduceMax = {emitReduceMax, Elements::arithmetic, unsupportedReduction};
const Emitter reduceMin = {emitReduceMin, Elements::arithmetic, unsupportedReduction};
const Emitter reduceProd = {emitReduceProd, Elements::arithmetic, unsupportedReduction};
const Emitter argMax = {emitArgMax, Elements::arithmetic, unsupportedReduction};
const Emitter cumulativeSum = {emitCumulativeSum, Elements::arithmetic, unsupportedReduction};

} // namespace emitters

} // namespace fsdpc
