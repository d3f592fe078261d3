#include "codegen/cuda/scratch.h"

#include "codegen/common/emitter.h"
#include "codegen/common/matmul_config.h"
#include "codegen/cuda/library_attention.h"
#include "ir/ops/attention.h"
#include "runtime/cuda/kernels/scratch_sizes.h"
#include "llvm/Support/MathExtras.h"

namespace fsdpc {

namespace {

// Scratch of cuBLASLt's split-k and stream-k algorithms for large matmuls on Hopper. Small matmuls do without these.
constexpr int64_t largeMatmulBytes = 32 << 20, smallMatmulBytes = 1 << 20;
constexpr uint64_t largeMatmul = uint64_t{1} << 28; ///< multiplications

int64_t matmulScratchBytes(const MatmulConfig &config) {
  uint64_t size = 1;
  for (int64_t dim : {config.batch, config.m, config.n, config.k})
    size = llvm::SaturatingMultiply(size, static_cast<uint64_t>(dim));
  return size == 0 ? 0 : size < largeMatmul ? smallMatmulBytes : largeMatmulBytes;
}

int64_t normGradScratchBytes(const Node &node) {
  llvm::ArrayRef<int64_t> shape = node.operand(1)->type().shape();
  const int64_t axis = node.get<NormAttributes>().axis;
  return rt::scratch_sizes::normGradBytes(productOf(shape.take_front(axis)), productOf(shape.drop_front(axis)),
                                          node.op() == Op::layerNormGrad ? 2 : 1);
}

int64_t linearLossScratchBytes(const Node &node) {
  int64_t matmuls = 0;
  for (const ChunkConfig &chunk : ChunkConfig::chunksOf(node, /*takesHalves=*/true))
    for (const MatmulConfig &config : chunk.all())
      matmuls = std::max(matmuls, matmulScratchBytes(config));
  return cudaLossBytesBeforeMatmuls(node) + matmuls;
}

int64_t channelSumsScratchBytes(const Type &x) {
  return rt::scratch_sizes::channelSumsBytes(x.dim(0), x.dim(1), productOf(x.shape().drop_front(2)));
}

int64_t attentionGradScratchBytes(const Node &node) {
  return rt::scratch_sizes::attentionGradBytes(node.operand(5)->type().elements(),
                                               !AttentionExtras(node).masks.empty());
}

} // namespace

int64_t cudaLossBytesBeforeMatmuls(const Node &node) {
  const DType dtype = node.operand(LinearLossSizes(node).hidden)->type().dtype();
  return LinearLossSizes::bytesOfChunk(node, byteSize(dtype));
}

int64_t cudaScratchBytes(const Node &node) {
  if (isAttentionByLibrary(node))
    return cudnnAttentionScratchBytes(node);
  switch (node.op()) {
  case Op::matmul: return matmulScratchBytes(MatmulConfig::of(node));
  case Op::linearCrossEntropy:
  case Op::linearCrossEntropyGrad: return linearLossScratchBytes(node);
  case Op::convolution:
  case Op::convolutionGradInput:
  case Op::convolutionGradWeight: return largeMatmulBytes;
  case Op::layerNormGrad:
  case Op::rmsNormGrad: return normGradScratchBytes(node);
  case Op::batchStatistics: return channelSumsScratchBytes(node.operand(0)->type());
  case Op::batchNormGrad: return channelSumsScratchBytes(node.operand(1)->type());
  case Op::attentionGrad: return attentionGradScratchBytes(node);
  default: return 0;
  }
}

} // namespace fsdpc
