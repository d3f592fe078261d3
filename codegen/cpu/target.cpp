#include "codegen/cpu/target.h"

#include "codegen/common/emitter.h"
#include "codegen/cpu/dialect.h"
#include "codegen/cpu/scratch.h"
#include "ir/ops/norm.h"
#include "runtime/cpu/link_bytes.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

namespace {

class CpuTarget final : public Target {
public:
  explicit CpuTarget(const CpuTargetOptions &options) : options(options) {}

  llvm::StringRef name() const override { return "cpu"; }
  int64_t alignmentBytes() const override { return 64; }
  int64_t arenaGranuleBytes() const override { return 4096; }
  int64_t workspaceBytes(const Node &node) const override {
    return scratchWithCopies(cpuDialect(), node, kernelScratchBytes(node));
  }
  std::string workspaceLevel() const override { return scratchLevel(); }
  bool operandInWindow(const Node &collective, unsigned operand) const override {
    return startsCollective(collective) && operand == 0;
  }
  bool resultInWindow(const Node &) const override { return false; }
  bool mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const override;
  int64_t hostLinkBytes(const Module &module) const override;
  double costMicroseconds(const Node &node) const override {
    return options.costMicroseconds ? options.costMicroseconds(node) : 0;
  }
  double exposedCopyMicroseconds(int64_t bytes, double overlappedMicroseconds) const override {
    return options.exposedCopyMicroseconds ? options.exposedCopyMicroseconds(bytes, overlappedMicroseconds) : 0;
  }
  std::optional<std::string> unsupported(const Node &node) const override { return unsupportedBy(cpuDialect(), node); }

private:
  /// Cached, since a query of oneDNN takes milliseconds and models repeat their shapes.
  template <class Query>
  int64_t mostOf(const std::string &text, const Query &bytesFor) const;
  template <class Config>
  int64_t scratchOf(const Config &config) const;
  int64_t nativeScratchOf(const MatmulConfig &config) const;
  int64_t attentionBytes(const Node &node) const;
  int64_t linearLossBytes(const Node &node) const;
  int64_t kernelScratchBytes(const Node &node) const;

  CpuTargetOptions options;
  mutable llvm::StringMap<int64_t> scratchByText;
};

template <class Query>
int64_t CpuTarget::mostOf(const std::string &text, const Query &bytesFor) const {
  auto [entry, isNew] = scratchByText.try_emplace(text, 0);
  // A program with fewer threads than planned must not need more than this, so each count is queried.
  if (isNew)
    for (int threads = 1; threads <= options.threads; ++threads)
      entry->second = std::max(entry->second, bytesFor(threads));
  return entry->second;
}

template <class Config>
int64_t CpuTarget::scratchOf(const Config &config) const {
  return mostOf(config.name() + config.text(), [&](int threads) { return scratchBytes(config, threads).value_or(0); });
}

int64_t CpuTarget::nativeScratchOf(const MatmulConfig &config) const {
  return mostOf("native " + config.name() + config.text(),
                [&](int threads) { return nativeScratchBytes(config, threads); });
}

/// Every thread works on its own head. Attention has one per head of q, its derivative one per head of k, which several
/// heads of q accumulate to.
int64_t CpuTarget::attentionBytes(const Node &node) const {
  const auto &attributes = node.get<AttentionAttributes>();
  const Type &split = node.operand(node.op() == Op::attention ? 0 : 2)->type();
  int64_t heads = split.dim(0) * split.dim(attributes.sequenceFirst ? 2 : 1);
  return attentionScratchBytes(node) * std::min<int64_t>(heads, options.threads);
}

/// Where the program starts, processors may multiply operands in bf16 or not.
int64_t CpuTarget::linearLossBytes(const Node &node) const {
  int64_t matmuls = 0;
  for (const bool isNative : {false, true})
    for (const ChunkConfig &chunk : ChunkConfig::chunksOf(node, isNative))
      for (const MatmulConfig &config : chunk.all())
        matmuls = std::max(matmuls, isNative ? nativeScratchOf(config) : scratchOf(config));
  return cpuLossBytesBeforeMatmuls(node) + matmuls;
}

int64_t CpuTarget::kernelScratchBytes(const Node &node) const {
  switch (node.op()) {
  case Op::matmul: return scratchOf(MatmulConfig::of(node));
  case Op::convolution:
  case Op::convolutionGradInput:
  case Op::convolutionGradWeight: return scratchOf(ConvolutionConfig::of(node));
  case Op::attention:
  case Op::attentionGrad: return attentionBytes(node);
  case Op::layerNormGrad:
  case Op::rmsNormGrad: return normGradScratchBytes(node);
  case Op::scatterAdd: return scatterAddScratchBytes(node);
  case Op::scatterRows: return scatterRowsScratchBytes(node);
  case Op::linearCrossEntropy:
  case Op::linearCrossEntropyGrad: return linearLossBytes(node);
  default: return 0;
  }
}

int64_t CpuTarget::hostLinkBytes(const Module &module) const {
  bool reduces = false;
  for (const auto &function : module.functions)
    for (const Node *node : *function)
      reduces |= node->schedule.stream == Stream::reduce;
  return module.worldSize() > 1 ? rt::linkBytesFor(module.worldSize(), reduces ? 2 : 1) : 0;
}

bool CpuTarget::mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const {
  const Type &from = node.operand(operand)->type(), &to = node.result(result)->type();
  if (from.elements() != to.elements() || byteSize(from.dtype()) != byteSize(to.dtype()))
    return false;
  // Other kernels read an operand again after writing, or may do so later.
  return node.op() == Op::fused || isElementwise(node) || isRowWrittenOver(node, result, operand) ||
         isWrittenInPlace(node, result, operand);
}

} // namespace

std::unique_ptr<Target> makeCpuTarget(const CpuTargetOptions &options) { return std::make_unique<CpuTarget>(options); }

} // namespace fsdpc
