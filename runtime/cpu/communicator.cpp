#include "runtime/cpu/communicator.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace fsdpc::rt {
namespace {

std::int64_t nanosecondsBetween(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

} // namespace

const char *nameOf(CollectiveOp op) {
  switch (op) {
  case CollectiveOp::allGather: return "all_gather";
  case CollectiveOp::reduceScatter: return "reduce_scatter";
  case CollectiveOp::allReduce: return "all_reduce";
  }
  return "";
}

Communicator::Communicator(int rank, int worldSize, CommunicatorOptions options)
    : rank_(rank), worldSize_(worldSize), options_(std::move(options)) {}

Ticket Communicator::start(Stream &stream, CollectiveRequest request) {
  request.sequence = ++sequence_;
  Outstanding &entry = outstanding_[request.sequence % capacity];
  entry.request = request;
  announce(request);
  // The request stays in the ring; the task is two pointers.
  const CollectiveRequest *stored = &entry.request;
  entry.event = stream.enqueue([this, stored] { run(*stored); });
  return {request.sequence};
}

void Communicator::wait(Stream &stream, Ticket ticket) {
  const Outstanding &entry = outstanding_[ticket.sequence % capacity];
  if (entry.request.sequence != ticket.sequence)
    throw Failure(ExitCode::internal, "wait for a collective that was never started, or too long ago");
  const std::int64_t skewBefore = bodySkewNanoseconds_.load(std::memory_order_relaxed);
  const auto entered = Clock::now();
  awaitReady(entry.request);
  const auto ready = Clock::now();
  stream.synchronize(entry.event);
  const auto ran = Clock::now();
  awaitBegun(entry.request);
  const auto begun = Clock::now();
  awaitDone(entry.request);
  const auto done = Clock::now();

  const std::int64_t inBody = nanosecondsBetween(ready, ran);
  const std::int64_t skewInBody = std::min(inBody, bodySkewNanoseconds_.load(std::memory_order_relaxed) - skewBefore);
  exposedNanoseconds_ += inBody - skewInBody + nanosecondsBetween(begun, done);
  skewNanoseconds_ += nanosecondsBetween(entered, ready) + skewInBody + nanosecondsBetween(ran, begun);
}

CommunicatorTimes Communicator::takeTimes() {
  bodySkewNanoseconds_.store(0, std::memory_order_relaxed);
  CommunicatorTimes times;
  times.communicationMicroseconds = communicationNanoseconds_.exchange(0, std::memory_order_relaxed) * 1e-3;
  times.exposedMicroseconds = std::exchange(exposedNanoseconds_, 0) * 1e-3;
  times.skewMicroseconds = std::exchange(skewNanoseconds_, 0) * 1e-3;
  return times;
}

void Communicator::countCommunication(Clock::time_point since) {
  communicationNanoseconds_.fetch_add(nanosecondsBetween(since, Clock::now()), std::memory_order_relaxed);
}

void Communicator::countSkew(Clock::time_point since) {
  bodySkewNanoseconds_.fetch_add(nanosecondsBetween(since, Clock::now()), std::memory_order_relaxed);
}

Failure Communicator::timeoutFailure(const CollectiveRequest &request, int missingRank) const {
  const auto index = static_cast<std::size_t>(request.collective);
  std::string unit = index < options_.collectives.size() ? options_.collectives[index].unit : "";
  // The closing line is words with blanks between them.
  for (char &c : unit)
    if (static_cast<unsigned char>(c) <= ' ')
      c = '_';
  char waited[96];
  std::snprintf(waited, sizeof waited, "rank %d did not come within %g s to ", missingRank, options_.timeoutSeconds);
  Failure failure(ExitCode::timeout, std::string(waited) + nameOf(request.op) + (unit.empty() ? "" : " of " + unit) +
                                         ", collective " + std::to_string(request.sequence) + " of the run");
  failure.details = (unit.empty() ? "" : "unit=" + unit + " ") + "seq=" + std::to_string(request.sequence) +
                    " op=" + nameOf(request.op) + " missing=" + std::to_string(missingRank);
  return failure;
}

} // namespace fsdpc::rt
