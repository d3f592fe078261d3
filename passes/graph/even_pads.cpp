#include "ir/ops/attributes.h"
#include "passes/graph/rewrite.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

bool isConvolution(const Node &node) {
  return node.op() == Op::convolution || node.op() == Op::convolutionGradInput ||
         node.op() == Op::convolutionGradWeight;
}

/// The remaining pads when both sides keep the padding that they share; per axis of x.
struct Rest {
  Shape before, after;

  /// Removes the rest from `attributes`.
  explicit Rest(ConvolutionAttributes &attributes) : before{0, 0}, after{0, 0} {
    for (size_t axis = 0; axis < attributes.padsBefore.size(); ++axis) {
      int64_t &first = attributes.padsBefore[axis], &last = attributes.padsAfter[axis];
      const int64_t common = std::min(first, last);
      before.push_back(first - common);
      after.push_back(last - common);
      first = last = common;
    }
  }
};

/// x surrounded by the rest, filled with zeros.
Value *padded(Builder &builder, Value *x, const Rest &rest) {
  return builder.create(Op::pad, {x}, PadAttributes{rest.before, rest.after, Shape(rest.before.size(), 0)})->result();
}

/// The derivative of the padded x, sliced to the size of x.
Value *gradInput(Builder &builder, const Node &node, ConvolutionAttributes attributes, const Rest &rest) {
  llvm::ArrayRef<int64_t> shape = node.result()->type().shape();
  for (size_t axis = 0; axis < shape.size(); ++axis)
    attributes.shape[axis] = shape[axis] + rest.before[axis] + rest.after[axis];
  Value *whole = builder.create(node.op(), node.operands(), attributes)->result();
  return builder.create(Op::slice, {whole}, SliceAttributes{rest.before, Shape(shape), Shape(shape.size(), 1)})
      ->result();
}

Replacement withEvenPads(Node &node, Builder &builder) {
  ConvolutionAttributes attributes = node.get<ConvolutionAttributes>();
  const Rest rest(attributes);
  if (node.op() == Op::convolutionGradInput)
    return {gradInput(builder, node, attributes, rest)};
  llvm::SmallVector<Value *, 4> operands = node.operands();
  operands[0] = padded(builder, operands[0], rest);
  return {builder.create(node.op(), operands, attributes)->result()};
}

llvm::Error run(Module &module, const PassContext &context) {
  rewriteNodes(*module.function(FunctionKind::forward), [&](Node &node, Builder &builder) -> Replacement {
    const bool isUneven = isConvolution(node) &&
                          node.get<ConvolutionAttributes>().padsBefore != node.get<ConvolutionAttributes>().padsAfter;
    return isUneven && context.target.unsupported(node) ? withEvenPads(node, builder) : Replacement{};
  });
  return llvm::Error::success();
}

} // namespace

const Pass evenPads = {"even_pads", Stage::graph, Stage::graph, false, run, FunctionKind::forward};

} // namespace fsdpc
