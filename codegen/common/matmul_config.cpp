#include "codegen/common/matmul_config.h"

#include "codegen/common/cpp_text.h"
#include "codegen/common/emitter.h"

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
  // A row or a column has the same layout as its transpose. oneDNN takes both forms for one primitive, whose scratch is
  // that of the form that was created first. So only one form is used.
  config.transposeA &= config.m != 1 && config.k != 1;
  config.transposeB &= config.k != 1 && config.n != 1;
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
      .str();
}

std::string MatmulConfig::name() const {
  std::string text = bias ? "matmulBias" : "matmul";
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
      .flag("bias", bias);
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
