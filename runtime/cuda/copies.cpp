#include "runtime/cuda/copies.h"

namespace fsdpc::rt {

namespace {

void start(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes, cudaMemcpyKind kind) {
  const cudaStream_t stream = deviceOf(context).channels[static_cast<std::size_t>(Channel::copy)];
  checkCuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream), "cudaMemcpyAsync");
  checkCuda(cudaEventRecord(copy.ended.handle, stream), "cudaEventRecord");
  copy.ended.joins = deviceOf(context).joins;
}

} // namespace

void createCopies(const Context &context, std::span<Copy> copies) {
  for (Copy &copy : copies)
    createEvents(context, {&copy.ended, 1});
}

void offloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes) {
  start(context, copy, from, to, bytes, cudaMemcpyDeviceToHost);
}

void reloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes) {
  start(context, copy, from, to, bytes, cudaMemcpyHostToDevice);
}

void wait(const Context &context, const Copy &copy) {
  if (copy.ended.joins == deviceOf(context).joins)
    checkCuda(cudaStreamWaitEvent(deviceOf(context).compute, copy.ended.handle, 0), "cudaStreamWaitEvent");
}

} // namespace fsdpc::rt
