#include "runtime/cpu/communicator.h"

#include "runtime/common/fingerprint.h"
#include "runtime/common/watchdog.h"

#include <algorithm>
#include <sys/prctl.h>
#include <thread>
#include <utility>

namespace fsdpc::rt {
namespace {

std::int64_t nanosecondsBetween(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

/// The number of collectives available to a program without a side table.
constexpr std::size_t unlistedCollectives = 16;

std::uint64_t hashOf(const std::byte *data, std::int64_t bytes) { return Fingerprint().addBytes(data, bytes).value(); }

/// `elements` counts bytes in an all_gather, whose dtype is u8.
std::int64_t operandBytes(const CollectiveRequest &request) {
  const std::int64_t bytes = request.elements * byteSize(request.dtype);
  return request.op == CollectiveOp::reduceScatter ? bytes * request.group->size : bytes;
}

std::int64_t resultBytes(const CollectiveRequest &request) {
  const std::int64_t bytes = request.elements * byteSize(request.dtype);
  return request.op == CollectiveOp::allGather ? bytes * request.group->size : bytes;
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

int channelsOf(std::span<const CollectiveInfo> collectives) {
  return std::any_of(collectives.begin(), collectives.end(), [](const auto &c) { return c.channel == Channel::reduce; })
             ? 2
             : 1;
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
  if (options_.debug != DebugCollectives::off)
    request.fingerprint = fingerprintOf(request);
  entry.request = request;
  entry.stream = &stream;
  entry.waited = false;
  if (options_.pulse) {
    const std::int64_t now = monotonicNanoseconds();
    options_.pulse->trace().start(traced(request), now);
    options_.pulse->line().sequence.store(request.sequence, std::memory_order_relaxed);
    options_.pulse->line().arrive(now);
  }
  announce(request);
  // The request stays in the table; the task is two pointers.
  const CollectiveRequest *stored = &entry.request;
  entry.event = stream.enqueue([this, stored] { runAndMark(*stored); });
  return {request.sequence, request.collective};
}

void Communicator::runAndMark(const CollectiveRequest &request) {
  const bool hashes = options_.pulse && options_.debug == DebugCollectives::detail;
  const std::uint64_t operandHash = hashes ? hashOf(request.source, operandBytes(request)) : 0;
  run(request);
  if (!options_.pulse)
    return;
  const std::int64_t now = monotonicNanoseconds();
  options_.pulse->trace().finish(request.sequence, now);
  options_.pulse->line().beat(now);
  if (hashes)
    options_.pulse->trace().hash(request.sequence, operandHash, hashOf(request.destination, resultBytes(request)));
}

void Communicator::markBegun(const CollectiveRequest &request) {
  if (options_.pulse)
    options_.pulse->trace().begin(request.sequence, monotonicNanoseconds());
  if (options_.whenBegun)
    options_.whenBegun(request.sequence);
}

bool Communicator::isLate(Clock::time_point since) const {
  const double waitedSeconds = std::chrono::duration<double>(Clock::now() - since).count();
  const double silentSeconds = options_.pulse ? options_.pulse->silentSeconds() : waitedSeconds;
  return std::min(waitedSeconds, silentSeconds) > options_.timeoutSeconds;
}

std::uint64_t Communicator::fingerprintOf(const CollectiveRequest &request) const {
  Fingerprint fingerprint;
  fingerprint.add(static_cast<std::uint64_t>(request.op) << 16 | static_cast<std::uint64_t>(request.dtype) << 8 |
                  static_cast<std::uint64_t>(request.channel));
  fingerprint.add(static_cast<std::uint64_t>(request.collective));
  fingerprint.add(static_cast<std::uint64_t>(axisOf(request.collective) + 1));
  fingerprint.add(static_cast<std::uint64_t>(request.elements));
  return fingerprint.value() | 1;
}

/// The collective as described by the side table.
TracedCollective Communicator::traced(int collective) const {
  TracedCollective record;
  const auto index = static_cast<std::size_t>(collective);
  if (index < options_.collectives.size()) {
    const CollectiveInfo &info = options_.collectives[index];
    record.op = info.op;
    record.unit = info.unit;
    record.name = info.name;
    record.bytes = info.bytes;
  }
  return record;
}

TracedCollective Communicator::traced(const CollectiveRequest &request) const {
  TracedCollective record = traced(request.collective);
  record.sequence = request.sequence;
  record.op = nameOf(request.op);
  record.group = request.group->first;
  record.fingerprint = request.fingerprint;
  return record;
}

Failure Communicator::disagreement(const CollectiveRequest &request, int peer, int peerCollective) const {
  const TracedCollective mine = traced(request);
  TracedCollective theirs = traced(peerCollective);
  if (theirs.op[0] == '\0')
    theirs.op = "another_collective";
  const auto inFull = [](int rank, const TracedCollective &record) {
    return "rank " + std::to_string(rank) + " came to " + inWords(record) + " (id " + record.name + ", " +
           std::to_string(record.bytes) + " bytes)";
  };
  const std::string first = inFull(rank_, mine), second = inFull(peer, theirs);
  Failure failure(ExitCode::disagreement, "as collective " + std::to_string(request.sequence) + " of the run " +
                                              (rank_ < peer ? first + " and " + second : second + " and " + first) +
                                              (peerCollective == request.collective ? ", with other arguments" : ""));
  const std::string unit = theirs.unit[0] ? " other_unit=" + withoutBlanks(theirs.unit) : "";
  failure.details = closingDetails(mine) + " other=" + std::to_string(peer) + unit + " other_op=" + theirs.op;
  return failure;
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
  // Not in order of sequence, but in the same order on every rank.
  for (Outstanding &entry : outstanding_)
    if (!entry.waited)
      wait({entry.request.sequence, entry.request.collective});
}

void Communicator::complete(const Outstanding &entry) {
  const auto &bodySkew = bodySkewNanoseconds_[static_cast<std::size_t>(entry.request.channel)];
  const std::int64_t skewBefore = bodySkew.load(std::memory_order_relaxed);
  if (options_.pulse)
    options_.pulse->trace().beginWait(entry.request.sequence);
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
  if (options_.pulse) {
    const std::int64_t now = monotonicNanoseconds();
    options_.pulse->trace().endWait(entry.request.sequence, now);
    options_.pulse->line().beat(now);
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

void Communicator::slowDown(const CollectiveRequest &request) const {
  const SlowLink &link = options_.slowLink;
  if (link.microseconds <= 0 && link.bytesPerMicrosecond <= 0)
    return;
  auto bytes = static_cast<double>(request.elements);
  if (request.op != CollectiveOp::allGather)
    bytes *= static_cast<double>(byteSize(request.dtype));
  bytes *= request.group->size; // elements counts a shard or, for all_reduce, a full buffer; every member has one
  const double added = link.microseconds + (link.bytesPerMicrosecond > 0 ? bytes / link.bytesPerMicrosecond : 0);
  // By default the kernel rounds a sleep up by 50 us, which would distort the simulated link.
  prctl(PR_SET_TIMERSLACK, 1);
  std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(added));
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

Failure Communicator::timeoutFailure(const CollectiveRequest &request, int missing) const {
  // Counters show which rank is late. Heartbeats show which rank is stopped.
  const auto seen = options_.pulse ? missingRank(*options_.pulse, options_.timeoutSeconds) : std::nullopt;
  return lateFailure(traced(request), seen.value_or(missing), options_.timeoutSeconds);
}

} // namespace fsdpc::rt
