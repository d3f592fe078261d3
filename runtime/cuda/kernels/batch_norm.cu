// Two sums over the elements of each channel, in one pass over memory: a block sums a chunk of a channel, and a second
// kernel sums the chunks. If a channel's contiguous ranges are long, adjacent threads read adjacent elements of a
// range. If they are short, as in [N, C], adjacent threads read adjacent channels.
//
// Statistics are sums of x - o and (x - o)^2, where o is the channel's first element. The square of the mean, which is
// subtracted afterwards, is then not much larger than the variance. The sums are double.
#include "runtime/cuda/kernels/batch_norm.h"

#include "runtime/common/failure.h"
#include "runtime/cuda/kernels/block.h"
#include "runtime/cuda/kernels/scratch_sizes.h"

namespace fsdpc::rt {

namespace {

struct SumPair {
  double first, second;
};
struct AddSumPairs {
  __device__ SumPair operator()(const SumPair &a, const SumPair &b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

constexpr int runThreads = 256;
constexpr unsigned columns = scratch_sizes::shortRunColumns, lanes = 8; ///< of a block for short ranges

template <class T>
struct OfDeviations {
  const T *x;
  std::int64_t inner;
  __device__ float originOf(std::int64_t channel) const { return static_cast<float>(x[channel * inner]); }
  __device__ void addTo(float &first, float &second, std::int64_t i, float origin) const {
    const float value = static_cast<float>(x[i]) - origin;
    first += value;
    second += value * value;
  }
};

template <class T>
struct OfGradients {
  const T *dy, *x;
  const float *mean;
  __device__ float originOf(std::int64_t channel) const { return mean[channel]; }
  __device__ void addTo(float &first, float &second, std::int64_t i, float origin) const {
    const float slope = static_cast<float>(dy[i]);
    first += slope;
    second += slope * (static_cast<float>(x[i]) - origin);
  }
};

/// Sums that start in float and are accumulated in double.
template <class Terms>
struct Accumulation {
  const Terms &terms;
  const float origin;
  SumPair total = {0, 0};
  float first = 0, second = 0;
  int added = 0;

  __device__ void add(std::int64_t i) {
    terms.addTo(first, second, i, origin);
    if (++added == floatTerms)
      widen();
  }
  __device__ void widen() {
    total.first += static_cast<double>(first);
    total.second += static_cast<double>(second);
    first = second = 0;
    added = 0;
  }
};

/// The samples of a chunk.
struct Chunk {
  std::int64_t begin, end;
  __device__ Chunk(std::int64_t samples, std::int64_t chunk, std::int64_t chunks)
      : begin(samples * chunk / chunks), end(samples * (chunk + 1) / chunks) {}
};

template <class Terms>
__global__ void sumLongRuns(ChannelShape shape, std::int64_t chunks, Terms terms, SumPair *partial) {
  for (std::int64_t block = blockIdx.x; block < shape.channels * chunks; block += gridDim.x) {
    const std::int64_t channel = block / chunks, chunk = block % chunks;
    const Chunk samples(shape.outer, chunk, chunks);
    Accumulation<Terms> sums{terms, terms.originOf(channel)};
    std::int64_t sample = samples.begin, at = threadIdx.x;
    while (sample < samples.end) {
      for (; at >= shape.inner; at -= shape.inner)
        ++sample;
      if (sample < samples.end)
        sums.add((sample * shape.channels + channel) * shape.inner + at);
      at += blockDim.x;
    }
    sums.widen();
    const SumPair total = blockReduce(sums.total, SumPair{0, 0}, AddSumPairs{});
    if (threadIdx.x == 0)
      partial[chunk * shape.channels + channel] = total;
  }
}

template <class Terms>
__global__ void sumShortRuns(ChannelShape shape, std::int64_t chunks, Terms terms, SumPair *partial) {
  const std::int64_t blocks = (shape.channels + columns - 1) / columns;
  for (std::int64_t block = blockIdx.x; block < blocks * chunks; block += gridDim.x) {
    const std::int64_t channel = block % blocks * columns + threadIdx.x, chunk = block / blocks;
    const bool exists = channel < shape.channels;
    const Chunk samples(shape.outer, chunk, chunks);
    Accumulation<Terms> sums{terms, exists ? terms.originOf(channel) : 0.0f};
    for (std::int64_t sample = samples.begin + threadIdx.y; exists && sample < samples.end; sample += blockDim.y)
      for (std::int64_t i = 0; i < shape.inner; ++i)
        sums.add((sample * shape.channels + channel) * shape.inner + i);
    sums.widen();
    const SumPair total = mergeLanes(sums.total, AddSumPairs{});
    if (threadIdx.y == 0 && exists)
      partial[chunk * shape.channels + channel] = total;
  }
}

/// Calls finish(channel, sums) with the sum of all chunks.
template <class Finish>
__global__ void addChunks(ChannelShape shape, std::int64_t chunks, const SumPair *partial, Finish finish) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t channel = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; channel < shape.channels;
       channel += step) {
    SumPair total = partial[channel];
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk)
      total = AddSumPairs{}(total, partial[chunk * shape.channels + channel]);
    finish(channel, total);
  }
}

template <class T>
struct PutStatistics {
  OfDeviations<T> terms;
  double count;
  float *mean, *variance;
  __device__ void operator()(std::int64_t channel, const SumPair &sums) const {
    const double shift = sums.first / count, spread = sums.second / count - shift * shift;
    mean[channel] = static_cast<float>(static_cast<double>(terms.originOf(channel)) + shift);
    variance[channel] = spread > 0 || spread != spread ? static_cast<float>(spread) : 0.0f;
  }
};

struct PutGradients {
  float *dot, *sum;
  __device__ void operator()(std::int64_t channel, const SumPair &sums) const {
    dot[channel] = static_cast<float>(sums.second);
    sum[channel] = static_cast<float>(sums.first);
  }
};

template <class Terms, class Finish>
void sumChannels(const Context &c, const ChannelShape &shape, const Terms &terms, const Finish &finish,
                 Workspace workspace) {
  if (workspace.bytes < channelSumsScratchBytes(shape))
    throw Failure(ExitCode::internal, "sums over channels have less scratch than they need");
  SumPair *const partial = reinterpret_cast<SumPair *>(workspace.data);
  const std::int64_t chunks = scratch_sizes::channelChunks(shape.outer, shape.channels, shape.inner);
  if (shape.inner < scratch_sizes::shortRun) {
    Grid grid = gridFor(c, (shape.channels + columns - 1) / columns * chunks, 1);
    grid.threads = dim3(columns, lanes);
    launch(c, grid, sumShortRuns<Terms>, shape, chunks, terms, partial);
  } else {
    Grid grid = gridFor(c, shape.channels * chunks, 1);
    grid.threads = dim3(runThreads);
    launch(c, grid, sumLongRuns<Terms>, shape, chunks, terms, partial);
  }
  launch(c, gridFor(c, shape.channels), addChunks<Finish>, shape, chunks, partial, finish);
}

} // namespace

std::int64_t channelSumsScratchBytes(const ChannelShape &shape) {
  static_assert(sizeof(SumPair) == 2 * sizeof(double));
  return scratch_sizes::channelSumsBytes(shape.outer, shape.channels, shape.inner);
}

template <class T>
void batchStatistics(const Context &c, const ChannelShape &shape, const T *x, float *mean, float *variance,
                     Workspace workspace) {
  const OfDeviations<T> terms{x, shape.inner};
  const double count = static_cast<double>(shape.outer * shape.inner);
  sumChannels(c, shape, terms, PutStatistics<T>{terms, count, mean, variance}, workspace);
}

template <class T>
void batchNormGrad(const Context &c, const ChannelShape &shape, const T *dy, const T *x, const float *mean, float *dot,
                   float *sum, Workspace workspace) {
  sumChannels(c, shape, OfGradients<T>{dy, x, mean}, PutGradients{dot, sum}, workspace);
}

#define FSDPC_CHANNEL_SUMS(T)                                                                                          \
  template void batchStatistics(const Context &, const ChannelShape &, const T *, float *, float *, Workspace);        \
  template void batchNormGrad(const Context &, const ChannelShape &, const T *, const T *, const float *, float *,     \
                              float *, Workspace);
FSDPC_CHANNEL_SUMS(float)
FSDPC_CHANNEL_SUMS(Bfloat16)
FSDPC_CHANNEL_SUMS(Float16)

} // namespace fsdpc::rt
