#include "runtime/cpu/collectives.h"

#include "runtime/common/profile.h"
#include "runtime/cpu/communicator.h"
#include "runtime/cpu/cpu_context.h"

namespace fsdpc::rt {
namespace {

CollectiveRequest makeRequest(const Context &context, CollectiveOp op, int collective, Place source,
                              void *destination) {
  CollectiveRequest request;
  request.op = op;
  request.collective = collective;
  request.record = context.profile ? context.profile->startCollective(collective) : nullptr;
  request.sourceOffsetBytes = source.offsetBytes;
  request.source = context.at<std::byte>(source);
  request.destination = static_cast<std::byte *>(destination);
  return request;
}

Ticket start(Context &context, const CollectiveRequest &request) {
  const CpuContext &own = cpuOf(context);
  Communicator &communicator = *own.communicator;
  const bool reduces = communicator.channelOf(request.collective) == Channel::reduce;
  return communicator.start(reduces ? *own.reduceStream : *own.commStream, request);
}

Ticket startSum(Context &context, CollectiveRequest &request, std::int64_t elements, DType dtype) {
  request.elements = elements;
  request.dtype = dtype;
  return start(context, request);
}

} // namespace

Ticket allGatherStart(Context &context, int collective, Place source, void *destination, std::int64_t shardBytes) {
  CollectiveRequest request = makeRequest(context, CollectiveOp::allGather, collective, source, destination);
  request.elements = shardBytes;
  return start(context, request);
}

Ticket reduceScatterStart(Context &context, int collective, Place source, void *destination, std::int64_t shardElements,
                          DType dtype) {
  CollectiveRequest request = makeRequest(context, CollectiveOp::reduceScatter, collective, source, destination);
  return startSum(context, request, shardElements, dtype);
}

Ticket allReduceStart(Context &context, int collective, Place source, void *destination, std::int64_t elements,
                      DType dtype) {
  CollectiveRequest request = makeRequest(context, CollectiveOp::allReduce, collective, source, destination);
  return startSum(context, request, elements, dtype);
}

void wait(Context &context, Ticket ticket) { cpuOf(context).communicator->wait(ticket); }

void discard(Context &context, Ticket &ticket) {
  if (ticket.sequence != 0)
    wait(context, ticket);
  ticket = {};
}

} // namespace fsdpc::rt
