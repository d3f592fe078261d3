#include "passes/cost/peak.h"

#include "ir/op.h"
#include "passes/cost/cost_model.h"

namespace fsdpc {

namespace {

bool countsForPeak(const Node &node) {
  std::optional<ComputeClass> computeClass = computeClassOf(node);
  return computeClass == ComputeClass::matmul || computeClass == ComputeClass::convolution ||
         computeClass == ComputeClass::attention;
}

} // namespace

double peakStepMicroseconds(const Module &module, const Hardware &hardware) {
  if (hardware.peakFlopsPerMicrosecond <= 0 || hardware.halfPeakFlopsPerMicrosecond <= 0)
    return 0;
  double total = 0;
  for (const std::unique_ptr<Function> &function : module.functions) {
    if (!runsInEveryStep(function->kind()))
      continue;
    for (const Node *node : *function)
      if (countsForPeak(*node)) {
        bool isHalf = byteSize(node->operand(0)->type().dtype()) == 2;
        total += static_cast<double>(module.callsPerStep(function->kind())) * infoOf(*node).cost(*node).flops /
                 (isHalf ? hardware.halfPeakFlopsPerMicrosecond : hardware.peakFlopsPerMicrosecond);
      }
  }
  return total;
}

} // namespace fsdpc
