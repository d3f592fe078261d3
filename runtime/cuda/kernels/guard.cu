// The sum of squares. A block has bins in shared memory, one set per warp, to which its threads add squares. Bins are
// emptied into the block's digits before they can overflow, and the digits are added to the accumulator. All are
// integers, so atomics are deterministic. Everything else handles a few values and uses one thread.
#include "runtime/common/guard.h"

#include "runtime/common/exact_sum.h"
#include "runtime/cuda/kernels/copy.h"
#include "runtime/cuda/launch.h"

namespace fsdpc::rt {

namespace {

using Word = unsigned long long; ///< what atomicAdd takes
constexpr int warps = 8, blockThreads = warps * 32;
static_assert(blockThreads == exact::bins, "each thread empties one bin");
/// A warp adds no more to its bins than they can hold.
constexpr std::int64_t chunkElements = exact::maxAddends * warps;

template <class T>
__device__ void addChunk(const T *x, std::int64_t begin, std::int64_t end, Word *bins, Word *digits) {
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockThreads) {
    const std::uint32_t bits = exact::bitsOf(elementAs<float>(x[i]));
    if (exact::binOf(bits) == exact::nonFiniteBin)
      atomicAdd(&digits[exact::isNaN(bits) ? exact::nanWord : exact::infinityWord], Word{1});
    else
      atomicAdd(&bins[exact::binOf(bits)], static_cast<Word>(exact::squareOf(bits)));
  }
}

__device__ void addBin(const exact::BinParts &bin, Word *digits) {
  for (int i = 0; i < 3; ++i)
    if (bin.parts[i] != 0)
      atomicAdd(&digits[bin.firstDigit + i], static_cast<Word>(bin.parts[i]));
}

template <class T>
__global__ void addSquares(const T *x, std::int64_t count, Word *sum) {
  __shared__ Word bins[warps][exact::bins];
  __shared__ Word digits[exact::words];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < exact::words)
    digits[thread] = 0;
  for (std::int64_t begin = blockIdx.x * chunkElements; begin < count; begin += gridDim.x * chunkElements) {
    for (int warp = 0; warp < warps; ++warp)
      bins[warp][thread] = 0;
    __syncthreads();
    const std::int64_t end = begin + chunkElements < count ? begin + chunkElements : count;
    addChunk(x, begin, end, bins[thread / 32], digits);
    __syncthreads();
    for (int warp = 0; warp < warps; ++warp)
      if (bins[warp][thread] != 0)
        addBin(exact::partsOf(thread, bins[warp][thread]), digits);
    __syncthreads();
  }
  if (thread < exact::words)
    atomicAdd(&sum[thread], digits[thread]);
}

__global__ void carrySum(std::uint64_t *sum) { exact::carry(sum); }

constexpr int maxSums = 8; ///< a sum for each way to split gradients
struct Sums {
  const std::int64_t *words[maxSums];
  int count;
};

__global__ void clipSum(ClipNumbers numbers, Sums sums, const float *loss, float *norm, float *scale, bool *applies) {
  std::uint64_t all[exact::words] = {};
  for (int sum = 0; sum < sums.count; ++sum)
    for (int i = 0; i < exact::words; ++i)
      all[i] += static_cast<std::uint64_t>(sums.words[sum][i]);
  exact::carry(all);
  const exact::Clipped result = exact::clip(all, *loss, numbers);
  *norm = result.norm;
  *scale = result.scale;
  *applies = result.applies;
}

__global__ void checkNorm(const float *norm, const bool *applies, const double *limit, const double *mean,
                          const double *variance, const std::int64_t *count, bool *stillApplies, double *nextMean,
                          double *nextVariance, std::int64_t *nextCount) {
  exact::NormHistory history = {*mean, *variance, *count};
  *stillApplies = *applies && exact::isNoSpike(*norm, *limit, history);
  *nextMean = history.mean;
  *nextVariance = history.variance;
  *nextCount = history.count;
}

__global__ void adjustScale(LossScaleRule rule, const double *scale, const std::int64_t *goodSteps,
                            const std::int64_t *hysteresis, const bool *applies, double *nextScale,
                            std::int64_t *nextGoodSteps, std::int64_t *nextHysteresis, bool *isExhausted) {
  const exact::LossScale next = exact::adjusted({*scale, *goodSteps, *hysteresis}, rule, *applies);
  *nextScale = next.scale;
  *nextGoodSteps = next.goodSteps;
  *nextHysteresis = next.hysteresis;
  *isExhausted = next.isExhausted;
}

const Grid oneThread = {dim3(1), dim3(1)};

} // namespace

void squareSum(const Context &c, std::initializer_list<FloatRange> tensors, std::int64_t *sum) {
  zeroBytes(c, sum, exact::words * static_cast<std::int64_t>(sizeof *sum));
  for (const FloatRange &tensor : tensors) {
    if (tensor.count == 0)
      continue;
    const std::int64_t chunks = (tensor.count + chunkElements - 1) / chunkElements;
    const std::int64_t most = std::int64_t{deviceOf(c).multiprocessors} * 4;
    const Grid grid = {dim3(static_cast<unsigned>(std::min(chunks, most))), dim3(blockThreads)};
    tensor.visit([&]<class T>(const T *data) {
      launch(c, grid, addSquares<T>, data, tensor.count, reinterpret_cast<Word *>(sum));
    });
  }
  launch(c, oneThread, carrySum, reinterpret_cast<std::uint64_t *>(sum));
}

void clipNorm(const Context &c, const ClipNumbers &numbers, std::initializer_list<const std::int64_t *> sums,
              const float *loss, float *norm, float *scale, bool *applies) {
  Sums all = {};
  for (const std::int64_t *sum : sums)
    all.words[all.count++] = sum;
  launch(c, oneThread, clipSum, numbers, all, loss, norm, scale, applies);
}

void spikeGuard(const Context &c, const float *norm, const bool *applies, const double *limit, const double *mean,
                const double *variance, const std::int64_t *count, bool *stillApplies, double *nextMean,
                double *nextVariance, std::int64_t *nextCount) {
  launch(c, oneThread, checkNorm, norm, applies, limit, mean, variance, count, stillApplies, nextMean, nextVariance,
         nextCount);
}

void adjustLossScale(const Context &c, const LossScaleRule &rule, const double *scale, const std::int64_t *goodSteps,
                     const std::int64_t *hysteresis, const bool *applies, double *nextScale,
                     std::int64_t *nextGoodSteps, std::int64_t *nextHysteresis, bool *isExhausted) {
  launch(c, oneThread, adjustScale, rule, scale, goodSteps, hysteresis, applies, nextScale, nextGoodSteps,
         nextHysteresis, isExhausted);
}

} // namespace fsdpc::rt
