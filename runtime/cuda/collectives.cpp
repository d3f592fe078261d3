#include "runtime/cuda/collectives.h"

#include "runtime/cuda/kernels/tree_sum.h"
#include "runtime/cuda/nccl_communicators.h"
#include "runtime/cuda/step_tape.h"

#include <algorithm>

namespace fsdpc::rt {
namespace {

cudaStream_t streamOf(const Context &context, const CollectiveInfo &info) {
  return context.device->channels[static_cast<std::size_t>(info.channel)];
}

int membersOf(ncclComm_t communicator) {
  int members = 0;
  checkNccl(ncclCommCount(communicator, &members), "ncclCommCount");
  return members;
}

/// Where a captured start is kept: a graph may start a collective once for every micro-step, and the host asks about
/// each. They follow the states of the side table in rounds.
CollectiveState &stateOfCaptured(Device &device, std::size_t index) {
  const std::size_t round = programCollectives().size();
  const auto isSame = [=](std::size_t other) { return other % round == index; };
  const auto before = std::count_if(device.captured->begin(), device.captured->end(), isSame);
  const std::size_t own = index + static_cast<std::size_t>(before) * round;
  device.captured->push_back(own);
  return device.collectives.at(own);
}

/// Calls enqueue(communicator, stream) and marks its end. The host cannot ask a captured event, so a graph records one
/// for it.
template <class Enqueue>
Ticket start(Context &context, int collective, const char *what, const Enqueue &enqueue) {
  Device &device = *context.device;
  const auto index = static_cast<std::size_t>(collective);
  const CollectiveInfo &info = programCollectives()[index];
  CollectiveState &state = device.collectives[index];
  const cudaStream_t stream = streamOf(context, info);
  CollectiveRecord *timed = device.tape ? device.tape->begins(collective, stream) : nullptr;
  checkNccl(enqueue(device.communicators->of(info), stream), what);
  if (timed)
    device.tape->ends(timed, stream);
  checkCuda(cudaEventRecord(state.completed, stream), "cudaEventRecord");
  state.started = ++device.sequence;
  state.isInGraph = device.captured.has_value();
  if (device.captured)
    recordForHost(device, stateOfCaptured(device, index).ended, stream);
  return {device.sequence, collective};
}

} // namespace

Ticket allGatherStart(Context &context, int collective, Place source, void *destination, std::int64_t shardBytes) {
  return start(context, collective, "ncclAllGather", [&](ncclComm_t communicator, cudaStream_t stream) {
    return ncclAllGather(context.at<std::byte>(source), destination, static_cast<std::size_t>(shardBytes), ncclUint8,
                         communicator, stream);
  });
}

// Plain sums: the loss seed carries every scale, and NCCL's average would lose the switch's reduction (NVLS).
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
  const Device &device = *context.device;
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
  context.device->leftoversDiscarded = true;
}

void createEvents(const Context &, std::span<Event> events) {
  for (Event &event : events)
    checkCuda(cudaEventCreateWithFlags(&event.handle, cudaEventDisableTiming), "cudaEventCreate");
}

void record(const Context &context, Event &event) {
  checkCuda(cudaEventRecord(event.handle, context.device->compute), "cudaEventRecord");
  event.joins = context.device->joins;
}

void await(const Context &context, Channel channel, const Event &event) {
  if (event.joins != context.device->joins)
    return;
  checkCuda(cudaStreamWaitEvent(context.device->channels[static_cast<std::size_t>(channel)], event.handle, 0),
            "cudaStreamWaitEvent");
}

void returnChannels(const Context &context) {
  const Device &device = *context.device;
  for (cudaStream_t channel : device.channels) {
    checkCuda(cudaEventRecord(device.joined, channel), "cudaEventRecord");
    checkCuda(cudaStreamWaitEvent(device.compute, device.joined, 0), "cudaStreamWaitEvent");
  }
}

void forkChannels(const Context &context) {
  const Device &device = *context.device;
  checkCuda(cudaEventRecord(device.joined, device.compute), "cudaEventRecord");
  for (cudaStream_t channel : device.channels)
    checkCuda(cudaStreamWaitEvent(channel, device.joined, 0), "cudaStreamWaitEvent");
}

void joinStreams(const Context &context) {
  returnChannels(context);
  forkChannels(context);
  noteJoined(*context.device);
}

} // namespace fsdpc::rt
