#include "codegen/common/matmul_config.h"

#include "codegen/common/cpp_text.h"
#include "codegen/common/emitter.h"
#include "ir/ops/loss.h"
#include "runtime/common/chunked_loss_layout.h"

namespace fsdpc {

MatmulConfig MatmulConfig::of(const Node &node) {
  const auto &attributes = node.get<MatmulAttributes>();
  const Type &a = node.operand(0)->type(), &b = node.operand(1)->type();
  MatmulConfig config;
  config.transposeA = attributes.transposeA;
  config.transposeB = attributes.transposeB;
  config.m = a.dim(config.transposeA ? -1 : -2);
  config.k = a.dim(config.transposeA ? -2 : -1);
  config.n = b.dim(config.transposeB ? -2 : -1);
  config.normalize();
  config.elements = a.dtype();
  config.result = node.result()->type().dtype();
  config.bias = node.operandCount() > 2;
  const Type &batched = a.rank() > 2 ? a : b;
  config.batch = productOf(batched.shape().drop_back(2));
  config.oneA = a.rank() == 2 && config.batch > 1;
  config.oneB = b.rank() == 2 && config.batch > 1;
  // Multiplying all batches by one matrix is one matmul over the rows of all batches.
  if (config.oneB && !config.transposeA) {
    config.m *= config.batch;
    config.batch = 1;
    config.oneB = false;
  }
  return config;
}

/// A row or a column has the same layout as its transpose. oneDNN takes both forms for one primitive, whose scratch is
/// that of the form that was created first. So only one form is used.
void MatmulConfig::normalize() {
  transposeA &= m != 1 && k != 1;
  transposeB &= k != 1 && n != 1;
}

LinearLossSizes::LinearLossSizes(const Node &node) {
  hidden = node.op() == Op::linearCrossEntropyGrad ? 1 : 0;
  const Type &x = node.operand(hidden)->type();
  rows = productOf(x.shape().drop_back());
  width = x.dim(-1);
  classes = classesOf(node);
  chunk = std::max<int64_t>(1, std::min(node.get<LinearLossAttributes>().chunk, rows));
  hasBias = node.operandCount() > hidden + 3;
}

bool LinearLossSizes::sumsColumns(const Node &node) {
  return node.op() == Op::linearCrossEntropyGrad && node.operandCount() == 5 &&
         !node.get<LinearLossAttributes>().frozenWeight;
}

int64_t LinearLossSizes::bytesOfChunk(const Node &node, int64_t elementBytes) {
  const LinearLossSizes sizes(node);
  return rt::ChunkedLossLayout(sizes.chunk, sizes.classes, elementBytes, sumsColumns(node)).matmuls;
}

ChunkConfig ChunkConfig::of(const Node &node, int64_t rows, bool takesHalves) {
  const LinearLossSizes sizes(node);
  const auto &attributes = node.get<LinearLossAttributes>();
  const DType elements = takesHalves ? node.operand(sizes.hidden)->type().dtype() : DType::f32;
  ChunkConfig chunk;
  chunk.logits = {.m = rows, .n = sizes.classes, .k = sizes.width, .transposeB = attributes.transposeB};
  chunk.logits.bias = sizes.hasBias;
  chunk.logits.elements = chunk.logits.result = elements;
  chunk.logits.normalize();
  if (node.op() != Op::linearCrossEntropyGrad)
    return chunk;
  chunk.dhidden = {.m = rows, .n = sizes.width, .k = sizes.classes, .transposeB = !attributes.transposeB};
  chunk.dhidden->elements = chunk.dhidden->result = elements;
  chunk.dhidden->normalize();
  if (attributes.frozenWeight)
    return chunk;
  chunk.dweight = {.m = sizes.width, .n = sizes.classes, .k = rows, .transposeA = true};
  if (attributes.transposeB)
    std::swap(chunk.dweight->m, chunk.dweight->n);
  chunk.dweight->elements = elements;
  chunk.dweight->result = DType::f32;
  chunk.dweight->normalize();
  chunk.dweightAdded = chunk.dweight;
  chunk.dweightAdded->accumulate = true;
  return chunk;
}

llvm::SmallVector<ChunkConfig, 2> ChunkConfig::chunksOf(const Node &node, bool takesHalves) {
  const LinearLossSizes sizes(node);
  llvm::SmallVector<ChunkConfig, 2> chunks = {of(node, sizes.chunk, takesHalves)};
  if (sizes.rows % sizes.chunk != 0)
    chunks.push_back(of(node, sizes.rows % sizes.chunk, takesHalves));
  return chunks;
}

llvm::SmallVector<MatmulConfig, 4> ChunkConfig::all() const {
  llvm::SmallVector<MatmulConfig, 4> configs = {logits};
  for (const std::optional<MatmulConfig> &config : {dhidden, dweight, dweightAdded})
    if (config)
      configs.push_back(*config);
  return configs;
}

std::string MatmulConfig::text() const {
  return CppFields()
      .number("batch", batch, 1)
      .number("m", m)
      .number("n", n)
      .number("k", k)
      .flag("transposeA", transposeA)
      .flag("transposeB", transposeB)
      .flag("oneA", oneA)
      .flag("oneB", oneB)
      .flag("bias", bias)
      .dtype("elements", elements)
      .dtype("result", result)
      .flag("accumulate", accumulate)
      .str();
}

std::string MatmulConfig::name() const {
  std::string text = bias ? "matmulBias" : accumulate ? "matmulAdd" : "matmul";
  text += transposeA ? "T" : "N";
  text += transposeB ? "t" : "n";
  if (batch > 1)
    text += std::to_string(batch) + "x";
  return text + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
}

ConvolutionConfig ConvolutionConfig::of(const Node &node) {
  const auto &attributes = node.get<ConvolutionAttributes>();
  ConvolutionConfig config;
  const Type *x = &node.operand(0)->type(), *w = &node.operand(1)->type(), *y = &node.result()->type();
  if (node.op() == Op::convolutionGradInput) {
    config.pass = Pass::gradInput;
    std::swap(x, y);
  } else if (node.op() == Op::convolutionGradWeight) {
    config.pass = Pass::gradWeight;
    std::swap(w, y);
  }
  config.batch = x->dim(0);
  config.inputChannels = x->dim(1);
  config.outputChannels = w->dim(0);
  config.groups = attributes.groups;
  config.input = Shape(x->shape().drop_front(2));
  config.kernel = Shape(w->shape().drop_front(2));
  config.output = Shape(y->shape().drop_front(2));
  config.strides = attributes.strides;
  config.dilations = attributes.dilations;
  config.padsBefore = attributes.padsBefore;
  config.padsAfter = attributes.padsAfter;
  config.bias = config.pass == Pass::forward && node.operandCount() > 2;
  config.elements = node.operand(0)->type().dtype();
  config.result = node.result()->type().dtype();
  return config;
}

std::string ConvolutionConfig::text() const {
  CppFields fields;
  fields.number("axes", static_cast<int64_t>(input.size()), 2)
      .number("batch", batch)
      .number("inputChannels", inputChannels)
      .number("outputChannels", outputChannels)
      .number("groups", groups, 1)
      .text("input", cppList(input))
      .text("kernel", cppList(kernel))
      .text("output", cppList(output))
      .text("strides", cppList(strides))
      .text("dilations", cppList(dilations))
      .text("padsBefore", cppList(padsBefore))
      .text("padsAfter", cppList(padsAfter))
      .flag("bias", bias)
      .dtype("elements", elements)
      .dtype("result", result);
  return fields.str();
}

std::string ConvolutionConfig::passText() const {
  switch (pass) {
  case Pass::forward: return "Convolution::Pass::forward";
  case Pass::gradInput: return "Convolution::Pass::gradInput";
  case Pass::gradWeight: return "Convolution::Pass::gradWeight";
  }
  return "";
}

std::string ConvolutionConfig::name() const {
  std::string text = pass == Pass::forward     ? "convolution"
                     : pass == Pass::gradInput ? "convolutionGradInput"
                                               : "convolutionGradWeight";
  return text + std::to_string(inputChannels) + "to" + std::to_string(outputChannels);
}

} // namespace fsdpc
