#include "tests/bf16/bounds.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc::rounding {

llvm::StringRef nameOf(Rule rule) {
  switch (rule) {
  case Rule::exact: return "exact";
  case Rule::steps: return "steps";
  case Rule::sum: return "sum";
  case Rule::rows: return "rows";
  case Rule::attention: return "attention";
  case Rule::linearLoss: return "linear loss";
  case Rule::optimizer: return "optimizer";
  case Rule::numbers: return "numbers";
  case Rule::nothing: return "nothing";
  }
  return "";
}

std::optional<Rule> ruleOf(const Node &node) {
  if (isElementwise(node))
    return Rule::steps;
  if (node.op() == Op::scatterNd) {
    llvm::StringRef reduction = node.get<ScatterNdAttributes>().reduction;
    return reduction == "add" || reduction == "mul" ? Rule::sum : Rule::exact;
  }
  switch (node.op()) {
  case Op::fused: return Rule::steps;
  case Op::constant:
  case Op::iota:
  case Op::broadcast:
  case Op::reshape:
  case Op::transpose:
  case Op::slice:
  case Op::pad:
  case Op::concat:
  case Op::gather:
  case Op::gatherNd:
  case Op::reduceMax:
  case Op::reduceMin:
  case Op::argMax:
  case Op::topK:
  case Op::maxPool:
  case Op::randomUniform:
  case Op::nll:
  case Op::nllGrad:
  case Op::view:
  case Op::pack:
  case Op::copy:
  case Op::squareSum: return Rule::exact;
  case Op::scatterAdd:
  case Op::cumulativeSum:
  case Op::reduceSum:
  case Op::matmul:
  case Op::convolution:
  case Op::convolutionGradInput:
  case Op::convolutionGradWeight:
  case Op::maxPoolGrad:
  case Op::averagePool:
  case Op::averagePoolGrad:
  case Op::reduceProd:
  case Op::rotary: return Rule::sum;
  case Op::softmax:
  case Op::softmaxGrad:
  case Op::logSoftmax:
  case Op::logSoftmaxGrad:
  case Op::layerNorm:
  case Op::layerNormGrad:
  case Op::rmsNorm:
  case Op::rmsNormGrad:
  case Op::batchStatistics:
  case Op::batchNormGrad:
  case Op::crossEntropy:
  case Op::crossEntropyGrad: return Rule::rows;
  case Op::attention:
  case Op::attentionGrad: return Rule::attention;
  case Op::linearCrossEntropy:
  case Op::linearCrossEntropyGrad: return Rule::linearLoss;
  case Op::sgd:
  case Op::adam:
  case Op::adadelta:
  case Op::adagrad:
  case Op::rmsprop:
  case Op::lion: return Rule::optimizer;
  case Op::clipNorm:
  case Op::spikeGuard:
  case Op::adjustLossScale: return Rule::numbers;
  case Op::offloadStart: // their results are checked by their readers
  case Op::reloadStart:
  case Op::write:
  case Op::tap:
  case Op::stash:
  case Op::unstash:
  case Op::free:
  case Op::read:
  case Op::ret: return Rule::nothing;
  default: return std::nullopt;
  }
}

double unitInLastPlace(DType dtype, double x) {
  struct Format {
    int digits, smallestExponent;
  };
  if (!isFloat(dtype))
    return 0;
  const Format format = dtype == DType::bf16  ? Format{8, -126}
                        : dtype == DType::f16 ? Format{11, -14}
                        : dtype == DType::f32 ? Format{24, -126}
                                              : Format{53, -1022};
  const int exponent = x == 0 || !std::isfinite(x) ? format.smallestExponent : std::ilogb(x);
  return std::ldexp(1.0, std::max(exponent, format.smallestExponent) - format.digits + 1);
}

double converted(DType dtype, double x) { return dtype == DType::f32 ? static_cast<float>(x) : roundedTo(dtype, x); }

std::vector<HostTensor> evaluated(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  std::vector<HostTensor> results;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    results.emplace_back(node.result(i)->type());
  EvaluateContext context{node.attributes(), operands, results, nullptr};
  infoOf(node).evaluate(context);
  return results;
}

Errors errorsOf(const Node &node, llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<HostTensor> values,
                const KernelFacts &facts) {
  switch (*ruleOf(node)) {
  case Rule::steps: return errorsOfSteps(node, operands);
  case Rule::sum: return errorsOfSum(node, operands);
  case Rule::rows: return errorsOfRows(node, operands, values);
  case Rule::attention: return errorsOfAttention(node, operands, facts);
  case Rule::linearLoss: return errorsOfLinearLoss(node, operands);
  case Rule::optimizer: return errorsOfOptimizer(node, operands, values);
  case Rule::exact:
  case Rule::numbers:
  case Rule::nothing: break;
  }
  return {};
}

} // namespace fsdpc::rounding
