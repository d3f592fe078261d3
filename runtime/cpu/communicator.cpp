#include "runtime/cpu/communicator.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace fsdpc::rt {
namespace {

std::int64_t nanosecondsBetween(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

/// What a program without a side table may use.
constexpr std::size_t unlistedCollectives = 16;

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
    : rank_(rank), worldSize_(worldSize), options_(std::move(options)),
      outstanding_(std::max(options_.collectives.size(), unlistedCollectives)) {
  groups_.push_back({0, 1, worldSize, rank});
  for (const MeshAxisInfo &axis : options_.axes)
    groups_.push_back({axis.rankOf(rank, 0), axis.stride, axis.size, axis.memberOf(rank)});
}

Communicator::Outstanding &Communicator::entryOf(int collective) {
  if (collective < 0 || static_cast<std::size_t>(collective) >= outstanding_.size())
    throw Failure(ExitCode::internal, "collective " + std::to_string(collective) + " is not in the side table");
  return outstanding_[static_cast<std::size_t>(collective)];
}

Channel Communicator::channelOf(int collective) const {
  const auto index = static_cast<std::size_t>(collective);
  return index < options_.collectives.size() ? options_.collectives[index].channel : Channel::comm;
}

int Communicator::axisOf(int collective) const {
  const auto index = static_cast<std::size_t>(collective);
  return index < options_.collectives.size() ? options_.collectives[index].axis : -1;
}

Ticket Communicator::start(Stream &stream, CollectiveRequest request) {
  Outstanding &entry = entryOf(request.collective);
  if (!entry.waited)
    throw Failure(ExitCode::internal, "a collective is started again before it was waited for");
  request.sequence = ++sequence_;
  request.channel = channelOf(request.collective);
  request.group = &groups_[static_cast<std::size_t>(axisOf(request.collective) + 1)];
  entry.request = request;
  entry.stream = &stream;
  entry.waited = false;
  announce(request);
  // The request stays in the table; the task is two pointers.
  const CollectiveRequest *stored = &entry.request;
  entry.event = stream.enqueue([this, stored] { run(*stored); });
  return {request.sequence, request.collective};
}

void Communicator::wait(Ticket ticket) {
  Outstanding &entry = entryOf(ticket.collective);
  if (ticket.sequence == 0 || entry.request.sequence != ticket.sequence)
    throw Failure(ExitCode::internal, "wait for a collective that was never started, or was started again");
  if (entry.waited)
    return;
  complete(entry);
  entry.waited = true;
}

void Communicator::drain() {
  // Not in order of sequence, but in an order that is the same on every rank.
  for (Outstanding &entry : outstanding_)
    if (!entry.waited)
      wait({entry.request.sequence, entry.request.collective});
}

void Communicator::complete(const Outstanding &entry) {
  const auto &bodySkew = bodySkewNanoseconds_[static_cast<std::size_t>(entry.request.channel)];
  const std::int64_t skewBefore = bodySkew.load(std::memory_order_relaxed);
  const auto entered = Clock::now();
  awaitReady(entry.request);
  const auto ready = Clock::now();
  entry.stream->synchronize(entry.event);
  const auto ran = Clock::now();
  awaitBegun(entry.request);
  const auto begun = Clock::now();
  awaitDone(entry.request);
  const auto done = Clock::now();
  if (entry.request.record) {
    entry.request.record->waitEntered = entered;
    entry.request.record->waitLeft = done;
  }

  const std::int64_t inBody = nanosecondsBetween(ready, ran);
  const std::int64_t skewInBody = std::min(inBody, bodySkew.load(std::memory_order_relaxed) - skewBefore);
  exposedNanoseconds_ += inBody - skewInBody + nanosecondsBetween(begun, done);
  skewNanoseconds_ += nanosecondsBetween(entered, ready) + skewInBody + nanosecondsBetween(ran, begun);
}

CommunicatorTimes Communicator::takeTimes() {
  CommunicatorTimes times;
  times.communicationMicroseconds = communicationNanoseconds_.exchange(0, std::memory_order_relaxed) * 1e-3;
  times.exposedMicroseconds = std::exchange(exposedNanoseconds_, 0) * 1e-3;
  times.skewMicroseconds = std::exchange(skewNanoseconds_, 0) * 1e-3;
  return times;
}

void Communicator::countCommunication(const CollectiveRequest &request, Clock::time_point since) {
  const auto done = Clock::now();
  communicationNanoseconds_.fetch_add(nanosecondsBetween(since, done), std::memory_order_relaxed);
  if (request.record) {
    request.record->begun = since;
    request.record->done = done;
  }
}

void Communicator::countSkew(const CollectiveRequest &request, Clock::time_point since) {
  bodySkewNanoseconds_[static_cast<std::size_t>(request.channel)].fetch_add(nanosecondsBetween(since, Clock::now()),
                                                                            std::memory_order_relaxed);
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
