#include "tests/gpu/loopback/sums.h"

#include "runtime/common/bfloat16.h"
#include "runtime/cuda/launch.h"

namespace fsdpc::loopback {

namespace {

using rt::Bfloat16;

struct Buffers {
  const void *senders[maxMembers];
  void *receivers[maxMembers];
  int senderCount, receiverCount;
};

/// T: element type of the buffers; Sum: type in which they are added.
template <class T, class Sum>
__global__ void sumBuffers(Buffers buffers, std::int64_t count) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    Sum sum{};
    for (int sender = 0; sender < buffers.senderCount; ++sender)
      sum += static_cast<Sum>(static_cast<const T *>(buffers.senders[sender])[i]);
    for (int receiver = 0; receiver < buffers.receiverCount; ++receiver)
      static_cast<T *>(buffers.receivers[receiver])[i] = static_cast<T>(sum);
  }
}

template <class T, class Sum>
bool enqueue(cudaStream_t stream, const Buffers &buffers, std::size_t count) {
  constexpr std::size_t threads = 256, maxBlocks = 256;
  const std::size_t blocks = std::min(maxBlocks, (count + threads - 1) / threads);
  rt::launchOn(stream, {dim3(static_cast<unsigned>(blocks)), dim3(threads)}, sumBuffers<T, Sum>, buffers,
               static_cast<std::int64_t>(count));
  return true;
}

} // namespace

bool enqueueSum(cudaStream_t stream, const std::vector<const std::byte *> &senders,
                const std::vector<std::byte *> &receivers, std::size_t count, ncclDataType_t type) {
  if (count == 0)
    return true;
  Buffers buffers{};
  for (const std::byte *sender : senders)
    buffers.senders[buffers.senderCount++] = sender;
  for (std::byte *receiver : receivers)
    buffers.receivers[buffers.receiverCount++] = receiver;
  switch (type) {
  case ncclFloat32: return enqueue<float, float>(stream, buffers, count);
  case ncclFloat64: return enqueue<double, double>(stream, buffers, count);
  case ncclBfloat16: return enqueue<Bfloat16, float>(stream, buffers, count);
  // Unsigned: bitwise identical, and wrapping is defined.
  case ncclInt32: return enqueue<std::uint32_t, std::uint32_t>(stream, buffers, count);
  case ncclInt64: return enqueue<std::uint64_t, std::uint64_t>(stream, buffers, count);
  default: return false;
  }
}

} // namespace fsdpc::loopback
