// Plain sums of products or elements. The op itself determines the number of terms of a result, and their absolute sum:
// it is evaluated on ones and on absolute values of the summed operands.
#include "ir/ops/attributes.h"
#include "tests/bf16/bounds.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace fsdpc::rounding {

namespace {

/// Whether an operand holds factors or summands; the others are indices.
bool isSummed(const Node &node, size_t operand) {
  switch (node.op()) {
  case Op::scatterAdd: return operand == 1;
  case Op::scatterNd: return operand != 1;
  case Op::maxPoolGrad: return operand == 0;
  default: return true;
  }
}

std::vector<HostTensor> evaluatedOn(const Node &node, llvm::ArrayRef<const HostTensor *> operands,
                                    double (*function)(double)) {
  std::vector<HostTensor> changed;
  changed.reserve(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    changed.push_back(*operands[i]);
    if (isSummed(node, i))
      llvm::transform(changed.back().values, changed.back().values.begin(), function);
  }
  llvm::SmallVector<const HostTensor *, 4> pointers;
  for (const HostTensor &tensor : changed)
    pointers.push_back(&tensor);
  return evaluated(node, pointers);
}

/// For ops whose evaluation does not count terms: an average divides its terms, a rotation always has two.
double fixedTerms(const Node &node) {
  if (node.op() == Op::averagePool || node.op() == Op::averagePoolGrad) {
    double count = 1;
    for (int64_t size : node.get<PoolAttributes>().kernel)
      count *= static_cast<double>(size);
    return count + 1;
  }
  return node.op() == Op::rotary ? 2 : 0;
}

/// A rotation subtracts a term with the lower half of its sines (ir/ops/rotary.cpp).
std::vector<HostTensor> absoluteTerms(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  auto absolute = [](double x) { return std::fabs(x); };
  std::vector<HostTensor> sums = evaluatedOn(node, operands, absolute);
  if (node.op() != Op::rotary)
    return sums;
  HostTensor sine = *operands[2];
  const auto width = static_cast<size_t>(sine.type.dim(-1));
  for (size_t i = 0; i < sine.values.size(); ++i)
    sine.values[i] = std::fabs(sine.values[i]) * (i % width < width / 2 ? -1 : 1);
  HostTensor x = *operands[0], cosine = *operands[1];
  llvm::transform(x.values, x.values.begin(), absolute);
  llvm::transform(cosine.values, cosine.values.begin(), absolute);
  return evaluated(node, {&x, &cosine, &sine});
}

/// A product of n factors rounds n times, relative to itself.
Errors errorsOfProduct(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  const Type &of = node.result()->type();
  const auto factors = static_cast<double>(operands[0]->type.elements()) / static_cast<double>(of.elements());
  Errors errors;
  for (double value : evaluated(node, operands)[0].values)
    (errors.empty() ? errors.emplace_back() : errors[0]).push_back(factors * unitRoundoff * std::fabs(value));
  return errors;
}

/// The number of factors is that of the updates and x for an element.
Errors errorsOfScatteredProduct(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  HostTensor ones = *operands[0], updates = *operands[2];
  ScatterNdAttributes count = node.get<ScatterNdAttributes>();
  count.reduction = "add";
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  std::fill(updates.values.begin(), updates.values.end(), 1.0);
  Attributes<ScatterNdAttributes> attributes(count);
  const HostTensor factors = evaluatePure(Op::scatterNd, &attributes, {&ones, operands[1], &updates}, {ones.type})[0];
  Errors errors(1);
  const HostTensor products = evaluated(node, operands)[0];
  for (size_t i = 0; i < products.values.size(); ++i)
    errors[0].push_back(factors.values[i] * unitRoundoff * std::fabs(products.values[i]));
  return errors;
}

} // namespace

Errors errorsOfSum(const Node &node, llvm::ArrayRef<const HostTensor *> operands) {
  if (node.op() == Op::reduceProd)
    return errorsOfProduct(node, operands);
  if (node.op() == Op::scatterNd && node.get<ScatterNdAttributes>().reduction == "mul")
    return errorsOfScatteredProduct(node, operands);
  std::vector<HostTensor> counts = evaluatedOn(node, operands, [](double) { return 1.0; });
  std::vector<HostTensor> sums = absoluteTerms(node, operands);
  Errors errors;
  for (size_t result = 0; result < sums.size(); ++result) {
    std::vector<double> &of = errors.emplace_back(sums[result].values);
    for (size_t i = 0; i < of.size(); ++i)
      of[i] *= unitRoundoff * (fixedTerms(node) > 0 ? fixedTerms(node) : counts[result].values[i]);
  }
  return errors;
}

} // namespace fsdpc::rounding
