#include "runtime/cpu/shared_communicator.h"

#include "runtime/cpu/backoff.h"
#include "runtime/cpu/tree_sum.h"

#include <cstring>
#include <thread>

namespace fsdpc::rt {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "counters are shared between processes");

namespace {

std::uint64_t taggedFingerprint(const CollectiveRequest &request) {
  return request.fingerprint ? request.sequence << 48 | request.fingerprint >> 16 : 0;
}

} // namespace

std::int64_t ControlBlock::bytesFor(int worldSize) {
  return static_cast<std::int64_t>(sizeof(ControlBlock) + worldSize * sizeof(Progress));
}

void ControlBlock::endRun(int rank, int exitCode) {
  std::uint32_t running = 0;
  const auto value = static_cast<std::uint32_t>(rank + 1) << 16 | static_cast<std::uint32_t>(exitCode);
  ended_.compare_exchange_strong(running, value, std::memory_order_acq_rel);
}

SharedCommunicator::SharedCommunicator(int rank, ControlBlock &control, std::vector<const std::byte *> windows,
                                       CommunicatorOptions options)
    : Communicator(rank, static_cast<int>(windows.size()), std::move(options)), control_(control),
      windows_(std::move(windows)) {}

void SharedCommunicator::announce(const CollectiveRequest &request) {
  ControlBlock::Progress &own = control_.of(rank());
  ControlBlock::Announcement &announcement = own.announced[request.sequence % ControlBlock::announcements];
  announcement.collective.store(request.collective, std::memory_order_relaxed);
  announcement.tagged.store(taggedFingerprint(request), std::memory_order_relaxed);
  own.ready.store(request.sequence, std::memory_order_release);
}

void SharedCommunicator::compareAnnouncements(const CollectiveRequest &request) const {
  constexpr int tagShift = 48;
  const std::uint64_t mine = taggedFingerprint(request);
  for (int member = 0; member < request.group->size; ++member) {
    const int peer = request.group->rankOf(member);
    if (!isHere(peer))
      continue;
    const ControlBlock::Announcement &other =
        control_.of(peer).announced[request.sequence % ControlBlock::announcements];
    const std::uint64_t theirs = other.tagged.load(std::memory_order_relaxed);
    if (theirs != mine && theirs >> tagShift == mine >> tagShift)
      throw disagreement(request, peer, other.collective.load(std::memory_order_relaxed));
  }
}

void SharedCommunicator::run(const CollectiveRequest &request) {
  awaitMembers({Moment::ready, request.sequence}, request);
  if (request.fingerprint)
    compareAnnouncements(request);
  awaitOtherHosts(request);
  ownProgress(request).begun.store(request.sequence, std::memory_order_release);
  markBegun(request);
  const auto begun = Clock::now();
  transfer(request);
  slowDown(request);
  countCommunication(request, begun);
  ownProgress(request).done.store(request.sequence, std::memory_order_release);
}

void SharedCommunicator::transfer(const CollectiveRequest &request) {
  switch (request.op) {
  case CollectiveOp::allGather: return copyShards(request);
  case CollectiveOp::reduceScatter:
    return sum(request, request.group->member * request.elements * byteSize(request.dtype));
  case CollectiveOp::allReduce: return sum(request, 0);
  }
}

void SharedCommunicator::copyShards(const CollectiveRequest &request) const {
  const RankGroup &group = *request.group;
  // Starts with the own shard and continues with the next member, so that ranks do not all read the same peer.
  for (int i = 0; i < group.size; ++i) {
    const int member = (group.member + i) % group.size;
    if (!isHere(group.rankOf(member)))
      continue;
    std::byte *to = request.destination + member * request.elements;
    const std::byte *from = operandOf(group.rankOf(member), request);
    if (to != from) // in place: the own shard is already at its destination
      std::memcpy(to, from, request.elements);
  }
}

void SharedCommunicator::sum(const CollectiveRequest &request, std::int64_t offsetBytes) const {
  constexpr int atOnce = 1024;
  const RankGroup &group = *request.group;
  if (group.size > atOnce)
    throw Failure(ExitCode::internal, "more ranks on one host than the sum over ranks was built for");
  const std::byte *sources[atOnce];
  for (int member = 0; member < group.size; ++member)
    sources[member] = operandOf(group.rankOf(member), request) + offsetBytes;
  treeSum(sources, group.size, request.destination, request.elements, request.dtype);
}

bool SharedCommunicator::hasCome(Mark mark, const CollectiveRequest &request, int peer) const {
  const ControlBlock::Progress &progress = control_.of(peer);
  const ControlBlock::ChannelProgress &channel = progress.channels[static_cast<int>(request.channel)];
  const auto counter = [&]() -> const std::atomic<std::uint64_t> & {
    switch (mark.moment) {
    case Moment::ready: return progress.ready;
    case Moment::begun: return channel.begun;
    case Moment::done: return channel.done;
    case Moment::staged: return channel.staged;
    case Moment::taken: break;
    }
    return channel.taken;
  };
  return counter().load(std::memory_order_acquire) >= mark.value;
}

void SharedCommunicator::awaitMembers(Mark mark, const CollectiveRequest &request) const {
  for (int member = 0; member < request.group->size; ++member)
    if (const int peer = request.group->rankOf(member); isHere(peer))
      awaitPeer(mark, request, peer);
}

void SharedCommunicator::awaitPeer(Mark mark, const CollectiveRequest &request, int peer) const {
  Backoff backoff(options().oversubscribed);
  Clock::time_point since{};
  while (!hasCome(mark, request, peer)) {
    backoff.pause();
    if (!backoff.isLong())
      continue;
    if (since == Clock::time_point{})
      since = Clock::now();
    lookAround(mark, request, since);
  }
}

void SharedCommunicator::lookAround(Mark mark, const CollectiveRequest &request, Clock::time_point since) const {
  throwIfEnded();
  throwIfLate(mark, request, since);
}

void SharedCommunicator::throwIfEnded() const {
  const std::uint32_t ended = control_.ended();
  if (ended == 0)
    return;
  // The rank that ended the run has reported why, and also ends this process. If it fails to do so, exit quietly.
  std::this_thread::sleep_for(std::chrono::duration<double>(options().graceSeconds));
  throw Failure(static_cast<ExitCode>(ended & 0xFFFF), "rank " + std::to_string((ended >> 16) - 1) + " ended the run");
}

int SharedCommunicator::slowestRank(int missing) const {
  const auto readyOf = [this](int peer) { return control_.of(peer).ready.load(std::memory_order_acquire); };
  for (int peer = 0; peer < worldSize(); ++peer)
    if (readyOf(peer) < readyOf(missing))
      missing = peer;
  return missing;
}

void SharedCommunicator::throwIfLate(Mark mark, const CollectiveRequest &request, Clock::time_point since) const {
  if (!isLate(since))
    return;
  const RankGroup &group = *request.group;
  int lowestPresent = -1;
  int lowestMissing = -1;
  for (int member = group.size - 1; member >= 0; --member) {
    const int peer = group.rankOf(member);
    (hasCome(mark, request, peer) ? lowestPresent : lowestMissing) = peer;
  }
  if (lowestMissing < 0)
    return;
  // The lowest rank that is present reports; the others only if it does not.
  if (lowestPresent != rank() && !isLate(since + std::chrono::duration_cast<Clock::duration>(
                                                     std::chrono::duration<double>(options().graceSeconds))))
    return;
  throw timeoutFailure(request, group.size == worldSize() ? lowestMissing : slowestRank(lowestMissing));
}

} // namespace fsdpc::rt
