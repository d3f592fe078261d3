#include "codegen/cuda/scratch.h"

#include "codegen/common/emitter.h"
#include "codegen/common/products.h"
#include "codegen/cuda/library_attention.h"
#include "ir/ops/attention.h"

namespace fsdpc {

namespace {

// What cuBLASLt's split-k and stream-k algorithms want for large products on Hopper; small ones do without.
constexpr int64_t largeProductBytes = 32 << 20, smallProductBytes = 1 << 20;
constexpr int64_t largeProduct = int64_t{1} << 28; ///< multiplications

int64_t productScratchBytes(const Node &node) {
  MatmulConfig config = MatmulConfig::of(node);
  int64_t size = config.batch * config.m * config.n * config.k;
  return size == 0 ? 0 : size < largeProduct ? smallProductBytes : largeProductBytes;
}

/// As chunksOf in runtime/cuda/kernels/norm.cu: partial sums of dgamma and dbeta over chunks of rows.
int64_t normGradScratchBytes(const Node &node) {
  constexpr int64_t blocks = 512, mostChunks = 128, fewRows = 32, blockColumns = 32 * 4;
  llvm::ArrayRef<int64_t> shape = node.operand(1)->type().shape();
  const int64_t axis = node.get<NormAttributes>().axis;
  const int64_t rows = productOf(shape.take_front(axis)), columns = productOf(shape.drop_front(axis));
  const int64_t columnBlocks = std::max<int64_t>(1, (columns + blockColumns - 1) / blockColumns);
  const int64_t chunks = std::min({blocks / columnBlocks, mostChunks, (rows + fewRows - 1) / fewRows});
  return std::max<int64_t>(1, chunks) * (node.op() == Op::layerNormGrad ? 2 : 1) * columns * 4;
}

/// As chunksOf in runtime/cuda/kernels/batch_norm.cu: two sums of each chunk of each channel.
int64_t channelSumsScratchBytes(const Type &x) {
  constexpr int64_t shortRun = 32, columns = 32, enoughBlocks = 1024, leastElements = 4096, bytes = 16;
  const int64_t outer = x.dim(0), channels = x.dim(1), inner = productOf(x.shape().drop_front(2));
  const int64_t blocks = inner < shortRun ? (channels + columns - 1) / columns : channels;
  const int64_t most = (outer * inner + leastElements - 1) / leastElements;
  const int64_t chunks = std::min({most, enoughBlocks / std::max<int64_t>(1, blocks), outer});
  return std::max<int64_t>(1, chunks) * channels * bytes;
}

/// As scratchBytes in runtime/cuda/kernels/attention_backward.cu: a number per query, with a mask three.
int64_t attentionGradScratchBytes(const Node &node) {
  const int64_t numbers = node.operandCount() == 7 ? 3 : 1;
  return numbers * node.operand(5)->type().elements() * 4;
}

} // namespace

int64_t cudaScratchBytes(const Node &node) {
  if (isAttentionByLibrary(node))
    return cudnnAttentionScratchBytes(node);
  switch (node.op()) {
  case Op::matmul: return productScratchBytes(node);
  case Op::convolution:
  case Op::convolutionGradInput:
  case Op::convolutionGradWeight: return largeProductBytes;
  case Op::layerNormGrad:
  case Op::rmsNormGrad: return normGradScratchBytes(node);
  case Op::batchStatistics: return channelSumsScratchBytes(node.operand(0)->type());
  case Op::batchNormGrad: return channelSumsScratchBytes(node.operand(1)->type());
  case Op::attentionGrad: return attentionGradScratchBytes(node);
  default: return 0;
  }
}

} // namespace fsdpc
