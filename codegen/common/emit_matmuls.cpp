// Matmuls, convolutions, pooling, attention.
#include "codegen/common/emitter.h"
#include "codegen/common/matmul_config.h"
#include "codegen/common/program_text.h"
#include "ir/ops/attention.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

namespace fsdpc {

namespace {

std::string createText(llvm::StringRef shape, int64_t workspaceBytes) {
  return (shape + ", " + llvm::Twine(workspaceBytes)).str();
}

/// name(operands..., result, workspace)
void emitPrimitive(SectionWriter &writer, const Node &node, llvm::StringRef name) {
  std::string arguments;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    arguments += writer.operand(node, i) + ", ";
  std::string out = writer.define(node.result());
  writer.line((name + "(" + arguments + out + ", " + writer.workspace(node) + ");").str());
}

void emitMatmul(SectionWriter &writer, const Node &node) {
  MatmulConfig config = MatmulConfig::of(node);
  if (!writer.program.dialect.takesHalves(node))
    config.elements = config.result = DType::f32;
  std::string name = writer.program.primitive("Matmul", config.name(),
                                              createText(config.text(), ownScratchBytes(writer.program.dialect, node)));
  emitPrimitive(writer, node, name);
}

/// LossMatmuls{&matmulNt..., ...}, with nullptr for one that is not computed
std::string lossMatmuls(SectionWriter &writer, const ChunkConfig &chunk, int64_t workspaceBytes) {
  auto name = [&](const std::optional<MatmulConfig> &config) {
    return config ? "&" + writer.program.primitive("LossMatmul", config->name(),
                                                   createText(config->text(), workspaceBytes))
                  : std::string("nullptr");
  };
  std::string text = "LossMatmuls{" + name(chunk.logits);
  if (chunk.dhidden)
    text += ", " + name(chunk.dhidden) + ", " + name(chunk.dweight) + ", " + name(chunk.dweightAdded);
  return text + "}";
}

std::string linearLossShape(const Node &node, const LinearLossSizes &sizes) {
  const auto &attributes = node.get<LinearLossAttributes>();
  return CppFields()
      .text("loss", lossText(sizes.rows, sizes.classes, attributes.loss, attributes.softcap))
      .number("width", sizes.width)
      .number("chunk", sizes.chunk)
      .flag("transposeB", attributes.transposeB)
      .dtype("elements", node.operand(sizes.hidden)->type().dtype())
      .str();
}

/// The operands, a null pointer for a missing bias, the results, null pointers for missing ones, the scratch.
void emitLinearLoss(SectionWriter &writer, const Node &node, llvm::StringRef kernel, unsigned allResults) {
  const LinearLossSizes sizes(node);
  const Dialect &dialect = writer.program.dialect;
  const int64_t matmulBytes = ownScratchBytes(dialect, node) - dialect.bytesBeforeMatmuls(node);
  llvm::SmallVector<std::string, 12> arguments;
  for (const ChunkConfig &chunk : ChunkConfig::chunksOf(node, dialect.takesHalves(node)))
    arguments.push_back(lossMatmuls(writer, chunk, matmulBytes));
  if (arguments.size() == 1)
    arguments.push_back("LossMatmuls{}");
  for (unsigned i = 0; i < node.operandCount(); ++i)
    arguments.push_back(writer.operand(node, i));
  if (!sizes.hasBias)
    arguments.push_back("nullptr");
  for (unsigned i = 0; i < allResults; ++i)
    arguments.push_back(i < node.resultCount() ? writer.define(node.result(i)) : "nullptr");
  arguments.push_back(writer.workspace(node));
  writer.call(kernel, linearLossShape(node, sizes), arguments);
}

void emitLinearCrossEntropy(SectionWriter &writer, const Node &node) {
  emitLinearLoss(writer, node, "linearCrossEntropy", 2);
}
void emitLinearCrossEntropyGrad(SectionWriter &writer, const Node &node) {
  emitLinearLoss(writer, node, "linearCrossEntropyGrad", 4);
}

void emitConvolution(SectionWriter &writer, const Node &node) {
  ConvolutionConfig config = ConvolutionConfig::of(node);
  if (!writer.program.dialect.takesHalves(node))
    config.elements = config.result = DType::f32;
  std::string name = writer.program.primitive(
      "Convolution", config.name(),
      createText(config.passText() + ", " + config.text(), ownScratchBytes(writer.program.dialect, node)));
  emitPrimitive(writer, node, name);
}

/// Spatial values padded in front to three axes.
std::string threeAxes(llvm::ArrayRef<int64_t> values, int64_t fill) {
  Shape padded(3 - values.size(), fill);
  padded.append(values.begin(), values.end());
  return cppList(padded);
}

std::string poolShape(const Node &node, const Type &x, const Type &y) {
  const auto &pool = node.get<PoolAttributes>();
  CppFields fields;
  fields.number("planes", x.dim(0) * x.dim(1))
      .text("input", threeAxes(x.shape().drop_front(2), 1))
      .text("output", threeAxes(y.shape().drop_front(2), 1))
      .text("kernel", threeAxes(pool.kernel, 1))
      .text("strides", threeAxes(pool.strides, 1));
  if (llvm::any_of(pool.dilations, [](int64_t dilation) { return dilation != 1; }))
    fields.text("dilations", threeAxes(pool.dilations, 1));
  if (llvm::any_of(pool.padsBefore, [](int64_t pad) { return pad != 0; }))
    fields.text("padsBefore", threeAxes(pool.padsBefore, 0));
  return fields.flag("countIncludePad", pool.countIncludePad).str();
}

void emitMaxPool(SectionWriter &writer, const Node &node) {
  std::string x = writer.operand(node, 0), y = writer.define(node.result(0)), indices = writer.define(node.result(1));
  writer.call("maxPool", poolShape(node, node.operand(0)->type(), node.result(0)->type()), {x, y, indices});
}
void emitMaxPoolGrad(SectionWriter &writer, const Node &node) {
  std::string dy = writer.operand(node, 0), indices = writer.operand(node, 1), dx = writer.define(node.result());
  writer.call("maxPoolGrad", poolShape(node, node.result()->type(), node.operand(0)->type()), {dy, indices, dx});
}
void emitAveragePool(SectionWriter &writer, const Node &node) {
  std::string x = writer.operand(node, 0), y = writer.define(node.result());
  writer.call("averagePool", poolShape(node, node.operand(0)->type(), node.result()->type()), {x, y});
}
void emitAveragePoolGrad(SectionWriter &writer, const Node &node) {
  std::string dy = writer.operand(node, 0), dx = writer.define(node.result());
  writer.call("averagePoolGrad", poolShape(node, node.result()->type(), node.operand(0)->type()), {dy, dx});
}

// Fields of AttentionShape and AttentionMasks.
constexpr llvm::StringLiteral strideFields[] = {"maskStrides", "secondMaskStrides"},
                              maskFields[] = {"added", "alsoAdded"};

std::string attentionShape(const Node &node, unsigned q) {
  const AttentionExtras extras(node);
  const auto &attributes = node.get<AttentionAttributes>();
  const Type &query = node.operand(q)->type(), &key = node.operand(q + 1)->type(), &value = node.operand(q + 2)->type();
  int headAxis = attributes.sequenceFirst ? 2 : 1, sequenceAxis = attributes.sequenceFirst ? 1 : 2;
  CppFields fields;
  fields.number("batch", query.dim(0))
      .number("heads", query.dim(headAxis))
      .number("queries", query.dim(sequenceAxis))
      .number("keys", key.dim(sequenceAxis))
      .number("queryWidth", query.dim(3))
      .number("valueWidth", value.dim(3))
      .text("scale", cppLiteral(DType::f32, attributes.scale))
      .flag("causal", attributes.causal)
      .flag("sequenceFirst", attributes.sequenceFirst);
  const int64_t scores[] = {query.dim(0), query.dim(headAxis), query.dim(sequenceAxis), key.dim(sequenceAxis)};
  for (auto [mask, field] : llvm::zip(extras.masks, strideFields))
    fields.text(field, cppList(broadcastStridesOf(node.operand(mask)->type().shape(), scores)));
  fields.number("keyHeads", key.dim(headAxis), query.dim(headAxis)).number("window", attributes.window, 0);
  if (extras.documents && node.operand(*extras.documents)->type().dim(0) > 1)
    fields.number("documentsStride", key.dim(sequenceAxis));
  if (std::isfinite(attributes.hidden))
    fields.text("hidden", cppLiteral(DType::f32, attributes.hidden)).flag("masksHidden", attributes.masksHidden);
  if (attributes.softcap > 0)
    fields.text("softcap", cppLiteral(DType::f32, attributes.softcap));
  return fields.str();
}

/// `q`: the position of operand q; k and v follow it.
std::string attentionPrimitive(SectionWriter &writer, const Node &node, unsigned q) {
  const bool isGrad = node.op() == Op::attentionGrad;
  const Type &query = node.operand(q)->type();
  const std::string stem = (isGrad ? "attentionGrad" : "attention") + std::to_string(query.dim(0)) + "x" +
                           std::to_string(query.dim(1)) + "x" + std::to_string(query.dim(2)) + "x" +
                           std::to_string(query.dim(3));
  const std::string pass = isGrad ? "CudnnAttention::Pass::backward, " : "CudnnAttention::Pass::forward, ";
  return writer.program.primitive(
      "CudnnAttention", stem,
      createText(pass + attentionShape(node, q), ownScratchBytes(writer.program.dialect, node)));
}

/// AttentionMasks of the runtime.
std::string attentionMasks(SectionWriter &writer, const Node &node) {
  const AttentionExtras extras(node);
  CppFields fields;
  for (auto [mask, field] : llvm::zip(extras.masks, maskFields))
    fields.text(field, writer.use(node.operand(mask)));
  if (extras.documents)
    fields.text("documents", writer.use(node.operand(*extras.documents)));
  return fields.str();
}

/// Arguments are the operands that every attention has, masks and the results. A library call has no masks.
void callAttention(SectionWriter &writer, const Node &node, unsigned q) {
  const bool isByLibrary = isAttentionByLibrary(node);
  llvm::SmallVector<std::string, 12> arguments;
  for (unsigned i = 0; i < AttentionExtras::firstOf(node); ++i)
    arguments.push_back(writer.operand(node, i));
  if (!isByLibrary)
    arguments.push_back(attentionMasks(writer, node));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    arguments.push_back(writer.define(node.result(i)));
  arguments.push_back(writer.workspace(node));
  if (isByLibrary)
    return writer.line(attentionPrimitive(writer, node, q) + "(" + llvm::join(arguments, ", ") + ");");
  writer.call(node.op() == Op::attentionGrad ? "attentionGrad" : "attention", attentionShape(node, q), arguments);
}

void emitAttention(SectionWriter &writer, const Node &node) { callAttention(writer, node, 0); }
void emitAttentionGrad(SectionWriter &writer, const Node &node) { callAttention(writer, node, 1); }

std::optional<std::string> unsupportedMatmul(const Node &node) {
  DType dtype = node.operand(0)->type().dtype();
  return isFloat(dtype) ? std::nullopt : std::optional("matmuls of " + nameOf(dtype).str());
}

} // namespace

namespace emitters {

const Emitter matmul = {emitMatmul, Elements::single, unsupportedMatmul};
const Emitter linearCrossEntropy = {emitLinearCrossEntropy, Elements::single};
const Emitter linearCrossEntropyGrad = {emitLinearCrossEntropyGrad, Elements::single};
const Emitter convolution = {emitConvolution, Elements::single};
const Emitter convolutionGradInput = convolution;
const Emitter convolutionGradWeight = convolution;
const Emitter maxPool = {emitMaxPool, Elements::single};
const Emitter maxPoolGrad = {emitMaxPoolGrad, Elements::single};
const Emitter averagePool = {emitAveragePool, Elements::single};
const Emitter averagePoolGrad = {emitAveragePoolGrad, Elements::single};
const Emitter attention = {emitAttention, Elements::single};
const Emitter attentionGrad = {emitAttentionGrad, Elements::single};

} // namespace emitters

} // namespace fsdpc
