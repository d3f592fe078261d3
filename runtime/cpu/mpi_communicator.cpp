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

MPI_Comm duplicate(MPI_Comm communicator) {
  MPI_Comm copy;
  MPI_Comm_dup(communicator, &copy);
  return copy;
}

/// `bytes` bytes, the next ones `strideBytes` further on.
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

MpiCommunicator::MpiCommunicator(MPI_Comm communicator, CommunicatorOptions options, std::int64_t pieceBytes)
    : Communicator(rankIn(communicator), sizeOf(communicator), std::move(options)),
      communicator_(duplicate(communicator)), pieceBytes_(pieceBytes), rollCall_(communicator_, rank(), worldSize()) {}

MpiCommunicator::~MpiCommunicator() { MPI_Comm_free(&communicator_); }

void MpiCommunicator::run(const CollectiveRequest &request) {
  const MpiScope allocationsAreMpis;
  awaitArrival(request);
  if (options().whenBegun)
    options().whenBegun(request.sequence);
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
  countCommunication(begun);
}

void MpiCommunicator::awaitArrival(const CollectiveRequest &request) {
  const auto since = Clock::now();
  MPI_Request barrier;
  MPI_Ibarrier(communicator_, &barrier);
  complete(barrier, request, false);
  countSkew(since);
}

void MpiCommunicator::exchange(Exchange kind, const CollectiveRequest &request, std::byte *to, std::int64_t bytes) {
  for (std::int64_t offset = 0; offset < bytes; offset += pieceBytes_)
    exchangePiece(kind, request, to, bytes, offset, static_cast<int>(std::min(pieceBytes_, bytes - offset)));
}

void MpiCommunicator::exchangePiece(Exchange kind, const CollectiveRequest &request, std::byte *to,
                                    std::int64_t blockBytes, std::int64_t offsetBytes, int bytes) {
  const StridedBlock block(bytes, blockBytes);
  MPI_Request operation;
  if (kind == Exchange::allToAll)
    MPI_Ialltoall(request.source + offsetBytes, 1, block.type(), to + offsetBytes, 1, block.type(), communicator_,
                  &operation);
  else if (request.source == to + rank() * blockBytes)
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to + offsetBytes, 1, block.type(), communicator_, &operation);
  else
    MPI_Iallgather(request.source + offsetBytes, bytes, MPI_BYTE, to + offsetBytes, 1, block.type(), communicator_,
                   &operation);
  complete(operation, request, true);
}

void MpiCommunicator::sumStaging(const CollectiveRequest &request) const {
  const std::int64_t bytes = request.elements * byteSize(request.dtype);
  constexpr int atOnce = 4096;
  if (worldSize() > atOnce)
    throw Failure(ExitCode::internal, "more ranks than the sum over ranks was built for");
  const std::byte *sources[atOnce];
  for (int peer = 0; peer < worldSize(); ++peer)
    sources[peer] = request.staging + peer * bytes;
  treeSum(sources, worldSize(), request.destination, request.elements, request.dtype);
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
  rollCall_.answer();
  if (std::chrono::duration<double>(Clock::now() - since).count() > options().timeoutSeconds)
    failLate(request);
}

void MpiCommunicator::failLate(const CollectiveRequest &request) {
  const std::vector<bool> present = rollCall_.ask(std::min(options().graceSeconds, 2.0));
  const auto lowestWith = [&](bool state) {
    return static_cast<int>(std::find(present.begin(), present.end(), state) - present.begin());
  };
  // The lowest rank that is there reports; the others only if it does not.
  if (lowestWith(true) != rank())
    std::this_thread::sleep_for(std::chrono::duration<double>(options().graceSeconds));
  const int missing = lowestWith(false);
  throw timeoutFailure(request, missing < worldSize() ? missing : rank());
}

} // namespace fsdpc::rt
