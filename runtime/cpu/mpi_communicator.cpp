#include "runtime/cpu/mpi_communicator.h"

#include "runtime/cpu/allocation_guard.h"
#include "runtime/cpu/backoff.h"
#include "runtime/cpu/tree_sum.h"

#include <algorithm>
#include <sched.h>
#include <thread>
#include <utility>

namespace fsdpc::rt {
namespace {

int rankIn(MPI_Comm communicator) {
  int rank;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

int sizeOf(MPI_Comm communicator) {
  int size;
  MPI_Comm_size(communicator, &size);
  return size;
}

/// An MPI type of `bytes` bytes; consecutive elements are `strideBytes` apart.
class StridedBlock {
public:
  StridedBlock(int bytes, std::int64_t strideBytes) {
    MPI_Datatype block;
    MPI_Type_contiguous(bytes, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, strideBytes, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&block);
  }
  ~StridedBlock() { MPI_Type_free(&type_); }
  StridedBlock(const StridedBlock &) = delete;
  StridedBlock &operator=(const StridedBlock &) = delete;
  MPI_Datatype type() const { return type_; }

private:
  MPI_Datatype type_;
};

} // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm communicator, CommunicatorOptions givenOptions, std::int64_t pieceBytes)
    : Communicator(rankIn(communicator), sizeOf(communicator), std::move(givenOptions)), pieceBytes_(pieceBytes) {
  const auto isUsed = [this](int channel) {
    return channel == 0 || std::any_of(options().collectives.begin(), options().collectives.end(),
                                       [&](const auto &info) { return static_cast<int>(info.channel) == channel; });
  };
  for (int channel = 0; channel < channelCount; ++channel)
    if (isUsed(channel))
      openChannel(channels_[channel], communicator);
}

MpiCommunicator::~MpiCommunicator() {
  for (ChannelHandles &channel : channels_) {
    for (MPI_Comm &axis : channel.axes)
      MPI_Comm_free(&axis);
    if (channel.all != MPI_COMM_NULL)
      MPI_Comm_free(&channel.all);
  }
}

void MpiCommunicator::openChannel(ChannelHandles &channel, MPI_Comm communicator) {
  MPI_Comm_dup(communicator, &channel.all);
  for (const MeshAxisInfo &axis : options().axes) {
    MPI_Comm group;
    MPI_Comm_split(communicator, axis.rankOf(rank(), 0), axis.memberOf(rank()), &group);
    channel.axes.push_back(group);
  }
  channel.rollCall.emplace(channel.all, rank(), worldSize());
}

MPI_Comm MpiCommunicator::handleFor(const CollectiveRequest &request) {
  const ChannelHandles &channel = channelFor(request);
  const int axis = axisOf(request.collective);
  return axis < 0 ? channel.all : channel.axes[static_cast<std::size_t>(axis)];
}

void MpiCommunicator::run(const CollectiveRequest &request) {
  const MpiScope allocationsAreMpis;
  awaitArrival(request);
  markBegun(request);
  const auto begun = Clock::now();
  const std::int64_t bytes =
      request.op == CollectiveOp::allGather ? request.elements : request.elements * byteSize(request.dtype);
  switch (request.op) {
  case CollectiveOp::allGather: exchange(Exchange::allGather, request, request.destination, bytes); break;
  case CollectiveOp::reduceScatter:
    exchange(Exchange::allToAll, request, request.staging, bytes);
    sumStaging(request);
    break;
  case CollectiveOp::allReduce:
    exchange(Exchange::allGather, request, request.staging, bytes);
    sumStaging(request);
    break;
  }
  slowDown(request);
  countCommunication(request, begun);
}

void MpiCommunicator::awaitArrival(const CollectiveRequest &request) {
  const auto since = Clock::now();
  MPI_Request barrier;
  // The maximum of the fingerprint and of its complement is a barrier that also shows whether all are equal.
  std::uint64_t *arrival = channelFor(request).arrival;
  arrival[0] = request.fingerprint;
  arrival[1] = ~request.fingerprint;
  MPI_Iallreduce(MPI_IN_PLACE, arrival, 2, MPI_UINT64_T, MPI_MAX, handleFor(request), &barrier);
  complete(barrier, request, false);
  countSkew(request, since);
  if (arrival[0] != ~arrival[1])
    disagree(request);
}

void MpiCommunicator::disagree(const CollectiveRequest &request) {
  std::vector<int> collectives(static_cast<std::size_t>(request.group->size));
  MPI_Request exchange;
  MPI_Iallgather(&request.collective, 1, MPI_INT, collectives.data(), 1, MPI_INT, handleFor(request), &exchange);
  complete(exchange, request, true);
  for (int member = 0; member < request.group->size; ++member)
    if (collectives[static_cast<std::size_t>(member)] != request.collective)
      throw disagreement(request, request.group->rankOf(member), collectives[static_cast<std::size_t>(member)]);
  throw disagreement(request, request.group->rankOf(request.group->member == 0 ? 1 : 0), request.collective);
}

void MpiCommunicator::exchange(Exchange kind, const CollectiveRequest &request, std::byte *to, std::int64_t bytes) {
  for (std::int64_t offset = 0; offset < bytes; offset += pieceBytes_)
    exchangePiece(kind, request, to, bytes, offset, static_cast<int>(std::min(pieceBytes_, bytes - offset)));
}

void MpiCommunicator::exchangePiece(Exchange kind, const CollectiveRequest &request, std::byte *to,
                                    std::int64_t blockBytes, std::int64_t offsetBytes, int bytes) {
  const StridedBlock block(bytes, blockBytes);
  MPI_Request operation;
  const MPI_Comm group = handleFor(request);
  if (kind == Exchange::allToAll)
    MPI_Ialltoall(request.source + offsetBytes, 1, block.type(), to + offsetBytes, 1, block.type(), group, &operation);
  else if (request.source == to + request.group->member * blockBytes)
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to + offsetBytes, 1, block.type(), group, &operation);
  else
    MPI_Iallgather(request.source + offsetBytes, bytes, MPI_BYTE, to + offsetBytes, 1, block.type(), group, &operation);
  complete(operation, request, true);
}

void MpiCommunicator::sumStaging(const CollectiveRequest &request) const {
  const std::int64_t bytes = request.elements * byteSize(request.dtype);
  constexpr int atOnce = 4096;
  const int members = request.group->size;
  if (members > atOnce)
    throw Failure(ExitCode::internal, "more ranks than the sum over ranks was built for");
  const std::byte *sources[atOnce];
  for (int member = 0; member < members; ++member)
    sources[member] = request.staging + member * bytes;
  treeSum(sources, members, request.destination, request.elements, request.dtype);
}

void MpiCommunicator::complete(MPI_Request operation, const CollectiveRequest &request, bool moving) {
  Backoff backoff(options().oversubscribed);
  const auto since = Clock::now();
  for (std::int64_t round = 1;; ++round) {
    int completed = 0;
    MPI_Test(&operation, &completed, MPI_STATUS_IGNORE);
    if (completed)
      return;
    if (!moving)
      backoff.pause();
    else if (options().oversubscribed || round % 64 == 0)
      sched_yield();
    if (moving ? round % 1024 == 0 : backoff.isLong())
      lookAround(request, since);
  }
}

void MpiCommunicator::lookAround(const CollectiveRequest &request, Clock::time_point since) {
  channelFor(request).rollCall->answer();
  if (isLate(since))
    failLate(request);
}

void MpiCommunicator::failLate(const CollectiveRequest &request) {
  const std::vector<bool> present = channelFor(request).rollCall->ask(std::min(options().graceSeconds, 2.0));
  int lowestPresent = 0;
  while (!present[request.group->rankOf(lowestPresent)])
    ++lowestPresent;
  // The lowest rank that is present reports; the others only if it does not.
  if (lowestPresent != request.group->member)
    std::this_thread::sleep_for(std::chrono::duration<double>(options().graceSeconds));
  throw timeoutFailure(request, missingRank(request, present));
}

/// Returns the lowest missing member. If all members wait, one of them waits for a rank of another group: returns the
/// lowest missing rank of all.
int MpiCommunicator::missingRank(const CollectiveRequest &request, const std::vector<bool> &present) const {
  for (int member = 0; member < request.group->size; ++member)
    if (const int peer = request.group->rankOf(member); !present[peer])
      return peer;
  const auto lowest = std::find(present.begin(), present.end(), false);
  return lowest == present.end() ? rank() : static_cast<int>(lowest - present.begin());
}

} // namespace fsdpc::rt
