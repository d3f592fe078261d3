#include "codegen/cuda/target.h"

#include "codegen/common/emitter.h"
#include "codegen/common/matmul_config.h"
#include "codegen/cuda/dialect.h"
#include "codegen/cuda/library_attention.h"
#include "codegen/cuda/scratch.h"
#include "ir/ops/norm.h"

namespace fsdpc {

namespace {

class CudaTarget final : public Target {
public:
  explicit CudaTarget(const CudaTargetOptions &options) : options(options) {}

  llvm::StringRef name() const override { return "cuda"; }
  int64_t alignmentBytes() const override { return 256; }
  int64_t arenaGranuleBytes() const override { return 2 << 20; }
  int64_t workspaceBytes(const Node &node) const override {
    return startsCollective(node) ? stagingBytes(node) : scratchWithCopies(cudaDialect(), node, cudaScratchBytes(node));
  }
  bool operandInWindow(const Node &collective, unsigned operand) const override {
    return startsCollective(collective) && operand == 0;
  }
  bool resultInWindow(const Node &collective) const override { return startsCollective(collective); }
  bool mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const override;
  bool ordersByEvents() const override { return true; }
  int64_t lossChunk() const override { return 1024; }
  double costMicroseconds(const Node &node) const override {
    return options.costMicroseconds ? options.costMicroseconds(node) : 0;
  }
  double exposedCopyMicroseconds(int64_t bytes, double overlappedMicroseconds) const override {
    return options.exposedCopyMicroseconds ? options.exposedCopyMicroseconds(bytes, overlappedMicroseconds) : 0;
  }
  std::optional<std::string> whyNotByLibrary(const Node &attention) const override { return cudnnRefuses(attention); }
  std::optional<std::string> unsupported(const Node &node) const override { return unsupportedBy(cudaDialect(), node); }

private:
  /// Space for the parts of all members that this rank sums.
  int64_t stagingBytes(const Node &start) const {
    if (!options.treeSums || start.op() == Op::allGatherStart)
      return 0;
    const int64_t operand = start.operand(0)->type().bytes();
    return start.op() == Op::allReduceStart ? operand * start.get<CollectiveAttributes>().ranks : operand;
  }

  CudaTargetOptions options;
};

/// Generated kernels, and norms with an added operand, read an element before the same thread writes it. Other kernels
/// read across threads.
bool CudaTarget::mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const {
  const Type &from = node.operand(operand)->type(), &to = node.result(result)->type();
  return from.elements() == to.elements() && byteSize(from.dtype()) == byteSize(to.dtype()) &&
         (node.op() == Op::fused || isElementwise(node) || isRowWrittenOver(node, result, operand) ||
          isWrittenInPlace(node, result, operand));
}

} // namespace

std::unique_ptr<Target> makeCudaTarget(const CudaTargetOptions &options) {
  return std::make_unique<CudaTarget>(options);
}

} // namespace fsdpc
