#include "runtime/cuda/collectives.h"

#include "runtime/cuda/device_progress.h"
#include "runtime/cuda/kernels/tree_sum.h"
#include "runtime/cuda/nccl_communicators.h"
#include "runtime/cuda/step_tape.h"

namespace fsdpc::rt {
namespace {

cudaStream_t streamOf(const Context &context, const CollectiveInfo &info) {
  return deviceOf(context).channels[static_cast<std::size_t>(info.channel)];
}

int membersOf(ncclComm_t communicator) {
  int members = 0;
  checkNccl(ncclCommCount(communicator, &members), "ncclCommCount");
  return members;
}

/// Calls enqueue(communicator, stream) and marks its beginning and end. A captured collective has separate marks, which
/// each launch of the graph records again.
template <class Enqueue>
Ticket start(Context &context, int collective, const char *what, const Enqueue &enqueue) {
  Device &device = deviceOf(context);
  const auto index = static_cast<std::size_t>(collective);
  const CollectiveInfo &info = programCollectives()[index];
  const cudaStream_t stream = streamOf(context, info);
  const std::uint64_t sequence = ++device.sequence;
  CollectiveMark &mark =
      device.captured ? device.progress->ofCaptured(device.captured->size()) : device.progress->ofCalled(sequence);
  recordForHost(device, mark.begun, stream);
  CollectiveRecord *timed = device.tape ? device.tape->begins(collective, stream) : nullptr;
  checkNccl(enqueue(device.communicators->of(info), stream), what);
  if (timed)
    device.tape->ends(timed, stream);
  checkCuda(cudaEventRecord(device.collectives[index].completed, stream), "cudaEventRecord");
  recordForHost(device, mark.ended, stream);
  if (device.captured)
    device.captured->push_back(collective);
  else
    device.progress->given(mark, sequence, collective);
  return {sequence, collective};
}

} // namespace

Ticket allGatherStart(Context &context, int collective, Place source, void *destination, std::int64_t shardBytes) {
  return start(context, collective, "ncclAllGather", [&](ncclComm_t communicator, cudaStream_t stream) {
    return ncclAllGather(context.at<std::byte>(source), destination, static_cast<std::size_t>(shardBytes), ncclUint8,
                         communicator, stream);
  });
}

// Plain sums: the loss seed carries every scale, and NCCL's average would lose in-switch reduction (NVLS).
Ticket reduceScatterStart(Context &context, int collective, Place source, void *destination, std::int64_t shardElements,
                          DType dtype, void *staging) {
  const auto *operand = context.at<std::byte>(source);
  const auto count = static_cast<std::size_t>(shardElements);
  return start(context, collective, "ncclReduceScatter", [&](ncclComm_t communicator, cudaStream_t stream) {
    if (!staging)
      return ncclReduceScatter(operand, destination, count, ncclTypeOf(dtype), ncclSum, communicator, stream);
    checkNccl(ncclAlltoAll(operand, staging, count, ncclTypeOf(dtype), communicator, stream), "ncclAlltoAll");
    treeSum(context, stream, staging, membersOf(communicator), destination, shardElements, dtype);
    return ncclSuccess;
  });
}

Ticket allReduceStart(Context &context, int collective, Place source, void *destination, std::int64_t elements,
                      DType dtype, void *staging) {
  const auto *operand = context.at<std::byte>(source);
  const auto count = static_cast<std::size_t>(elements);
  return start(context, collective, "ncclAllReduce", [&](ncclComm_t communicator, cudaStream_t stream) {
    if (!staging)
      return ncclAllReduce(operand, destination, count, ncclTypeOf(dtype), ncclSum, communicator, stream);
    checkNccl(ncclAllGather(operand, staging, count, ncclTypeOf(dtype), communicator, stream), "ncclAllGather");
    treeSum(context, stream, staging, membersOf(communicator), destination, elements, dtype);
    return ncclSuccess;
  });
}

void wait(Context &context, Ticket ticket) {
  const Device &device = deviceOf(context);
  if (ticket.sequence <= device.joinedSequence)
    return;
  const CollectiveState &state = device.collectives[static_cast<std::size_t>(ticket.collective)];
  CollectiveRecord *timed = device.tape ? device.tape->waitBegins(ticket.collective) : nullptr;
  checkCuda(cudaStreamWaitEvent(device.compute, state.completed, 0), "cudaStreamWaitEvent");
  if (timed)
    device.tape->waitEnds(timed);
}

void discard(Context &context, Ticket &ticket) {
  if (ticket.sequence != 0)
    wait(context, ticket);
  ticket = {};
  deviceOf(context).leftoversDiscarded = true;
}

void createEvents(const Context &, std::span<Event> events) {
  for (Event &event : events)
    checkCuda(cudaEventCreateWithFlags(&event.handle, cudaEventDisableTiming), "cudaEventCreate");
}

void record(const Context &context, Event &event) {
  checkCuda(cudaEventRecord(event.handle, deviceOf(context).compute), "cudaEventRecord");
  event.joins = deviceOf(context).joins;
}

void await(const Context &context, Channel channel, const Event &event) {
  if (event.joins != deviceOf(context).joins)
    return;
  checkCuda(cudaStreamWaitEvent(deviceOf(context).channels[static_cast<std::size_t>(channel)], event.handle, 0),
            "cudaStreamWaitEvent");
}

void returnChannels(const Context &context) {
  const Device &device = deviceOf(context);
  for (cudaStream_t channel : device.channels) {
    checkCuda(cudaEventRecord(device.joined, channel), "cudaEventRecord");
    checkCuda(cudaStreamWaitEvent(device.compute, device.joined, 0), "cudaStreamWaitEvent");
  }
}

void forkChannels(const Context &context) {
  const Device &device = deviceOf(context);
  checkCuda(cudaEventRecord(device.joined, device.compute), "cudaEventRecord");
  for (cudaStream_t channel : device.channels)
    checkCuda(cudaStreamWaitEvent(channel, device.joined, 0), "cudaStreamWaitEvent");
}

void joinStreams(const Context &context) {
  returnChannels(context);
  forkChannels(context);
  noteJoined(deviceOf(context));
}

} // namespace fsdpc::rt
