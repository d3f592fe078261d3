#include "runtime/cpu/hosts_communicator.h"

#include "runtime/cpu/allocation_guard.h"
#include "runtime/cpu/backoff.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <thread>
#include <utility>

namespace fsdpc::rt {
namespace {

constexpr int partTag = 1;
constexpr std::int64_t cacheLineBytes = 64;
/// Rounds are multiples of so many elements, so that slots of every type begin on a cache line.
constexpr std::int64_t roundGranule = 16;

int rankIn(MPI_Comm communicator) {
  int rank;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

std::int64_t roundsFor(std::int64_t amount, std::int64_t perRound) { return (amount + perRound - 1) / perRound; }

/// Rounds of all collectives of a channel as one ascending number.
std::uint64_t roundMark(const CollectiveRequest &request, std::int64_t round) {
  return request.sequence << 24 | static_cast<std::uint64_t>(round + 1);
}

std::vector<bool> ranksOfHost(const std::vector<int> &hostOfRank, int host) {
  std::vector<bool> result;
  for (const int other : hostOfRank)
    result.push_back(other == host);
  return result;
}

} // namespace

struct HostsCommunicator::Slices {
  const HostGroup &group;
  std::int64_t perRound;
  std::int64_t base;    ///< the first element of all slices
  std::int64_t length;  ///< of a slice
  std::int64_t end;     ///< of the buffer, where the last slice may end early
  bool everyMemberOwns; ///< otherwise HostGroup::sliceOwners

  int indexOf(int member) const { return everyMemberOwns ? member : group.sliceOf(member); }
  std::int64_t startOf(int member) const { return base + indexOf(member) * length; }
  /// Elements of the member's slice in this round.
  std::int64_t countOf(int member, std::int64_t round = 0) const {
    if (indexOf(member) < 0)
      return 0;
    const std::int64_t first = startOf(member) + round * perRound;
    return std::clamp<std::int64_t>(std::min(startOf(member) + length, end) - first, 0, perRound);
  }
  std::int64_t rounds() const { return roundsFor(length, perRound); }
};

HostsCommunicator::HostsCommunicator(MPI_Comm world, HostMemory memory, CommunicatorOptions givenOptions)
    : SharedCommunicator(rankIn(world), *memory.control, memory.windows, std::move(givenOptions)),
      memory_(std::move(memory)),
      here_(ranksOfHost(memory_.hostOfRank, memory_.hostOfRank[static_cast<std::size_t>(rank())])) {
  for (const RankGroup &group : groups())
    hostGroups_.emplace_back(group, memory_.hostOfRank);
  const auto isUsed = [this](int channel) {
    return channel == 0 || std::any_of(options().collectives.begin(), options().collectives.end(),
                                       [&](const auto &info) { return static_cast<int>(info.channel) == channel; });
  };
  std::vector<int> used;
  for (int channel = 0; channel < channelCount; ++channel)
    if (isUsed(channel))
      used.push_back(channel);
  const auto halves = 2 * static_cast<std::int64_t>(used.size());
  halfBytes_ = memory_.linkBytes / halves / cacheLineBytes * cacheLineBytes;
  std::for_each(hostGroups_.begin(), hostGroups_.end(), [this](const HostGroup &group) { checkLink(group); });
  for (std::size_t i = 0; i < used.size(); ++i) {
    channels_[used[i]].linkOffset = static_cast<std::int64_t>(i) * 2 * halfBytes_;
    openChannel(used[i], world);
  }
  MPI_Comm_dup(world, &rollCallHandle_);
  rollCall_ = std::make_unique<RollCall>(rollCallHandle_, rank(), worldSize());
}

HostsCommunicator::~HostsCommunicator() {
  for (ChannelState &channel : channels_)
    for (Handles &handles : channel.groups)
      for (MPI_Comm *handle : {&handles.members, &handles.leaders})
        if (*handle != MPI_COMM_NULL)
          MPI_Comm_free(handle);
  MPI_Comm_free(&rollCallHandle_);
}

void HostsCommunicator::openChannel(int channel, MPI_Comm world) {
  ChannelState &state = channels_[static_cast<std::size_t>(channel)];
  std::size_t operations = 0;
  for (std::size_t i = 0; i < groups().size(); ++i) {
    const RankGroup &group = groups()[i];
    const HostGroup &hosts = hostGroups_[i];
    Handles handles;
    MPI_Comm_split(world, group.first, group.member, &handles.members);
    const bool leads = hosts.hosts() > 1 && hosts.leaderOf(hosts.ownHost()) == group.member;
    MPI_Comm_split(handles.members, leads ? 0 : MPI_UNDEFINED, group.member, &handles.leaders);
    state.groups.push_back(handles);
    const int most = std::max(hosts.maxPartners() * hosts.maxSubtreesOfAHost() + hosts.hosts(),
                              std::max(hosts.maxForeignSubtrees(), hosts.maxPartners()) + hosts.hosts());
    operations = std::max(operations, static_cast<std::size_t>(most));
    state.operands.resize(std::max(state.operands.size(), static_cast<std::size_t>(group.size)));
  }
  for (int parity = 0; parity < 2; ++parity) {
    state.receives[parity].reserve(operations);
    state.sends[parity].reserve(operations);
  }
  state.parts.reserve(state.operands.size());
}

std::int64_t HostsCommunicator::elementsPerRound(const HostGroup &group, DType dtype) const {
  // Also enough for the totals of an all_reduce: one of the rank's own and one per partner.
  const std::int64_t slots = group.maxForeignSubtrees() + group.maxPartners() * group.maxSubtreesOfAHost();
  return halfBytes_ / (slots * partialByteSize(dtype)) / roundGranule * roundGranule;
}

void HostsCommunicator::checkLink(const HostGroup &group) const {
  if (group.hosts() == 1 || elementsPerRound(group, DType::f64) > 0)
    return;
  throw Failure(ExitCode::incompatible,
                "the ranks are spread over the hosts in so irregular a way that a host would have to send sums of " +
                    std::to_string(group.maxSubtreesOfAHost()) +
                    " parts; give each host the same number of consecutive ranks (mpirun --map-by ppr:N:node)",
                true);
}

// ---- before the data ----

void HostsCommunicator::awaitOtherHosts(const CollectiveRequest &request) {
  const HostGroup &group = hostsOf(request);
  if (group.hosts() == 1)
    return;
  const auto since = Clock::now();
  const int leader = group.leaderOf(group.ownHost());
  if (leader != group.ownMember()) {
    awaitPeer({Moment::begun, request.sequence}, request, request.group->rankOf(leader));
    return countSkew(request, since);
  }
  const MpiScope allocationsAreMpis;
  // The maximum of the fingerprint and of its complement is a barrier that also shows whether all are equal.
  std::uint64_t *arrival = stateOf(request).arrival;
  arrival[0] = request.fingerprint;
  arrival[1] = ~request.fingerprint;
  MPI_Request barrier;
  MPI_Iallreduce(MPI_IN_PLACE, arrival, 2, MPI_UINT64_T, MPI_MAX, handlesOf(request).leaders, &barrier);
  complete(barrier, request);
  countSkew(request, since);
  if (arrival[0] != ~arrival[1])
    disagree(request);
}

void HostsCommunicator::disagree(const CollectiveRequest &request) {
  const HostGroup &group = hostsOf(request);
  std::vector<int> collectives(static_cast<std::size_t>(group.hosts()));
  MPI_Request exchange;
  MPI_Iallgather(&request.collective, 1, MPI_INT, collectives.data(), 1, MPI_INT, handlesOf(request).leaders,
                 &exchange);
  complete(exchange, request);
  for (int host = 0; host < group.hosts(); ++host)
    if (const int theirs = collectives[static_cast<std::size_t>(host)]; theirs != request.collective)
      throw disagreement(request, request.group->rankOf(group.leaderOf(host)), theirs);
  throw disagreement(request, request.group->rankOf(group.leaderOf(group.ownHost() == 0 ? 1 : 0)), request.collective);
}

void HostsCommunicator::transfer(const CollectiveRequest &request) {
  const HostGroup &group = hostsOf(request);
  if (group.hosts() == 1)
    return SharedCommunicator::transfer(request);
  if (request.elements == 0)
    return;
  const MpiScope allocationsAreMpis;
  switch (request.op) {
  case CollectiveOp::allGather: return gather(request);
  case CollectiveOp::reduceScatter: {
    const std::int64_t end = request.elements * group.size();
    return reduce(request, {group, elementsPerRound(group, request.dtype), 0, request.elements, end, true},
                  request.destination);
  }
  case CollectiveOp::allReduce: return allReduce(request);
  }
}

// ---- all_gather ----

void HostsCommunicator::gather(const CollectiveRequest &request) {
  const HostGroup &group = hostsOf(request);
  const std::int64_t pieceBytes = halfBytes_ / group.maxPartners() / cacheLineBytes * cacheLineBytes;
  const std::int64_t rounds = roundsFor(request.elements, pieceBytes);
  ChannelState &state = stateOf(request);
  postGather(request, 0, pieceBytes);
  copyShards(request);
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) {
      if (round > 0) // the next round uses the half of the last one
        awaitTaken(request, round - 1);
      postGather(request, round + 1, pieceBytes);
    }
    complete(state.receives[round % 2], request);
    takeGathered(request, round, pieceBytes);
    complete(state.sends[round % 2], request);
  }
  awaitTaken(request, rounds - 1);
}

void HostsCommunicator::postGather(const CollectiveRequest &request, std::int64_t round, std::int64_t pieceBytes) {
  const HostGroup &group = hostsOf(request);
  ChannelState &state = stateOf(request);
  const std::int64_t offset = round * pieceBytes;
  const std::int64_t bytes = std::min(pieceBytes, request.elements - offset);
  const bool alone = group.membersOf(group.ownHost()).size() == 1;
  for (const int owner : group.partners())
    receive(request,
            alone ? request.destination + owner * request.elements + offset
                  : ownHalf(request, round) + group.slotOf(owner) * pieceBytes,
            bytes, owner, state.receives[round % 2]);
  for (int host = 0; host < group.hosts(); ++host)
    if (host != group.ownHost())
      send(request, request.source + offset, bytes, group.partnerOf(group.ownMember(), host), state.sends[round % 2]);
}

void HostsCommunicator::takeGathered(const CollectiveRequest &request, std::int64_t round, std::int64_t pieceBytes) {
  const HostGroup &group = hostsOf(request);
  if (group.membersOf(group.ownHost()).size() == 1)
    return take(request, round);
  stage(request, round);
  const std::int64_t offset = round * pieceBytes;
  const std::int64_t bytes = std::min(pieceBytes, request.elements - offset);
  for (int owner = 0; owner < group.size(); ++owner) {
    if (group.hostOf(owner) == group.ownHost())
      continue;
    const int partner = group.partnerOf(owner, group.ownHost());
    awaitStaged(request, partner, round);
    std::memcpy(request.destination + owner * request.elements + offset,
                halfOf(partner, request, round) + group.slotOf(owner) * pieceBytes, bytes);
  }
  take(request, round);
}

// ---- reduce_scatter ----

void HostsCommunicator::reduce(const CollectiveRequest &request, const Slices &slices, std::byte *total) {
  ChannelState &state = stateOf(request);
  const std::int64_t rounds = slices.rounds();
  receiveParts(request, slices, 0);
  sendParts(request, slices, 0);
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) {
      receiveParts(request, slices, round + 1);
      sendParts(request, slices, round + 1);
    }
    complete(state.receives[round % 2], request);
    addParts(request, slices, round, total);
    complete(state.sends[round % 2], request);
  }
}

void HostsCommunicator::receiveParts(const CollectiveRequest &request, const Slices &slices, std::int64_t round) {
  const HostGroup &group = slices.group;
  const std::int64_t elements = slices.countOf(group.ownMember(), round);
  if (elements == 0)
    return;
  const std::int64_t slotBytes = slices.perRound * partialByteSize(request.dtype);
  std::byte *slot = ownHalf(request, round);
  for (int host = 0; host < group.hosts(); ++host) {
    if (host == group.ownHost())
      continue;
    for (const Subtree &part : group.subtreesOf(host)) {
      const std::int64_t width = part.count == 1 ? byteSize(request.dtype) : partialByteSize(request.dtype);
      receive(request, slot, elements * width, group.partnerOf(group.ownMember(), host),
              stateOf(request).receives[round % 2]);
      slot += slotBytes;
    }
  }
}

void HostsCommunicator::sendParts(const CollectiveRequest &request, const Slices &slices, std::int64_t round) {
  const HostGroup &group = slices.group;
  const std::int64_t slotBytes = slices.perRound * partialByteSize(request.dtype);
  std::byte *slot = ownHalf(request, round) + group.maxForeignSubtrees() * slotBytes;
  for (const int owner : group.partners()) {
    const std::int64_t elements = slices.countOf(owner, round);
    if (elements == 0)
      continue;
    const std::int64_t first = slices.startOf(owner) + round * slices.perRound;
    for (const Subtree &part : group.subtreesOf(group.ownHost())) {
      sendPart(request, owner, part, first * byteSize(request.dtype), elements, slot,
               stateOf(request).sends[round % 2]);
      slot += slotBytes;
    }
  }
}

void HostsCommunicator::sendPart(const CollectiveRequest &request, int owner, const Subtree &part,
                                 std::int64_t offsetBytes, std::int64_t elements, std::byte *slot,
                                 std::vector<MPI_Request> &sends) {
  const std::byte **operands = stateOf(request).operands.data();
  for (int i = 0; i < part.count; ++i)
    operands[i] = operandOf(request.group->rankOf(part.first + i), request) + offsetBytes;
  if (part.count > 1) {
    sumSubtree(operands, part.count, slot, elements, request.dtype);
    return send(request, slot, elements * partialByteSize(request.dtype), owner, sends);
  }
  // The own operand is sent from where it is. A peer's is copied: a network adapter may refuse memory that this process
  // cannot write.
  const std::int64_t bytes = elements * byteSize(request.dtype);
  if (part.first == request.group->member)
    return send(request, operands[0], bytes, owner, sends);
  std::memcpy(slot, operands[0], bytes);
  send(request, slot, bytes, owner, sends);
}

void HostsCommunicator::addParts(const CollectiveRequest &request, const Slices &slices, std::int64_t round,
                                 std::byte *total) {
  const HostGroup &group = slices.group;
  const std::int64_t elements = slices.countOf(group.ownMember(), round);
  if (elements == 0)
    return;
  ChannelState &state = stateOf(request);
  const std::int64_t width = byteSize(request.dtype);
  const std::int64_t offsetBytes = (slices.startOf(group.ownMember()) + round * slices.perRound) * width;
  for (const int member : group.membersOf(group.ownHost()))
    state.operands[static_cast<std::size_t>(member)] = operandOf(request.group->rankOf(member), request) + offsetBytes;
  const std::byte *slot = ownHalf(request, round);
  state.parts.clear();
  for (int host = 0; host < group.hosts(); ++host)
    for (const Subtree &part : group.subtreesOf(host)) {
      const bool isOwn = host == group.ownHost();
      const std::byte **operands = &state.operands[static_cast<std::size_t>(part.first)];
      if (!isOwn && part.count == 1)
        *operands = slot;
      state.parts.push_back({part, isOwn || part.count == 1 ? operands : nullptr, isOwn ? nullptr : slot});
      if (!isOwn)
        slot += slices.perRound * partialByteSize(request.dtype);
    }
  std::sort(state.parts.begin(), state.parts.end(),
            [](const SumPart &a, const SumPart &b) { return a.members.first < b.members.first; });
  sumParts(state.parts, total + round * slices.perRound * width, elements, request.dtype);
}

// ---- all_reduce ----

void HostsCommunicator::allReduce(const CollectiveRequest &request) {
  const HostGroup &group = hostsOf(request);
  const auto owners = static_cast<std::int64_t>(group.sliceOwners().size());
  const std::int64_t share = roundsFor(request.elements, owners * roundGranule) * roundGranule;
  const std::int64_t length = std::min(elementsPerRound(group, request.dtype), share);
  const bool alone = group.membersOf(group.ownHost()).size() == 1;
  std::int64_t round = 0;
  for (std::int64_t base = 0; base < request.elements; base += owners * length, ++round) {
    const Slices slices{group, length, base, length, request.elements, false};
    // Partial sums use one half of the link, totals the other.
    std::byte *own = ownHalf(request, 1);
    if (alone)
      own = request.destination + slices.startOf(group.ownMember()) * byteSize(request.dtype);
    reduce(request, slices, own);
    exchangeTotals(request, slices, own);
    if (!alone) {
      stage(request, round);
      takeTotals(request, slices, round);
    }
    take(request, round);
    awaitTaken(request, round);
  }
}

void HostsCommunicator::exchangeTotals(const CollectiveRequest &request, const Slices &slices, std::byte *own) {
  const HostGroup &group = slices.group;
  if (group.sliceOf(group.ownMember()) < 0)
    return;
  ChannelState &state = stateOf(request);
  const std::int64_t width = byteSize(request.dtype);
  const bool alone = group.membersOf(group.ownHost()).size() == 1;
  for (const int owner : group.sliceOwners())
    if (const std::int64_t elements = slices.countOf(owner);
        elements > 0 && group.hostOf(owner) != group.ownHost() &&
        group.partnerOf(owner, group.ownHost()) == group.ownMember())
      receive(request,
              alone ? request.destination + slices.startOf(owner) * width
                    : ownHalf(request, 1) + (1 + group.slotOf(owner)) * slices.perRound * width,
              elements * width, owner, state.receives[1]);
  if (const std::int64_t elements = slices.countOf(group.ownMember()); elements > 0)
    for (int host = 0; host < group.hosts(); ++host)
      if (host != group.ownHost())
        send(request, own, elements * width, group.partnerOf(group.ownMember(), host), state.sends[1]);
  complete(state.receives[1], request);
  complete(state.sends[1], request);
}

void HostsCommunicator::takeTotals(const CollectiveRequest &request, const Slices &slices, std::int64_t round) {
  const HostGroup &group = slices.group;
  const std::int64_t width = byteSize(request.dtype);
  for (const int owner : group.sliceOwners()) {
    const std::int64_t elements = slices.countOf(owner);
    if (elements == 0)
      continue;
    const bool isHost = group.hostOf(owner) == group.ownHost();
    const int holder = isHost ? owner : group.partnerOf(owner, group.ownHost());
    const std::int64_t slot = isHost ? 0 : 1 + group.slotOf(owner);
    awaitStaged(request, holder, round);
    std::memcpy(request.destination + slices.startOf(owner) * width,
                halfOf(holder, request, 1) + slot * slices.perRound * width, elements * width);
  }
}

// ---- rounds, messages and waits ----

void HostsCommunicator::stage(const CollectiveRequest &request, std::int64_t round) {
  ownProgress(request).staged.store(roundMark(request, round), std::memory_order_release);
}

void HostsCommunicator::awaitStaged(const CollectiveRequest &request, int member, std::int64_t round) {
  awaitPeer({Moment::staged, roundMark(request, round)}, request, request.group->rankOf(member));
}

void HostsCommunicator::take(const CollectiveRequest &request, std::int64_t round) {
  ownProgress(request).taken.store(roundMark(request, round), std::memory_order_release);
}

void HostsCommunicator::awaitTaken(const CollectiveRequest &request, std::int64_t round) {
  awaitMembers({Moment::taken, roundMark(request, round)}, request);
}

void HostsCommunicator::receive(const CollectiveRequest &request, std::byte *to, std::int64_t bytes, int member,
                                std::vector<MPI_Request> &requests) {
  MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, member, partTag, handlesOf(request).members,
            &requests.emplace_back());
}

void HostsCommunicator::send(const CollectiveRequest &request, const std::byte *from, std::int64_t bytes, int member,
                             std::vector<MPI_Request> &requests) {
  MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, member, partTag, handlesOf(request).members,
            &requests.emplace_back());
}

void HostsCommunicator::complete(std::vector<MPI_Request> &operations, const CollectiveRequest &request) {
  const auto since = Clock::now();
  for (std::int64_t round = 1;; ++round) {
    int completed = 0;
    MPI_Testall(static_cast<int>(operations.size()), operations.data(), &completed, MPI_STATUSES_IGNORE);
    if (completed)
      break;
    if (options().oversubscribed || round % 64 == 0)
      sched_yield();
    if (round % 1024 == 0)
      answerAndCheck(request, since);
  }
  operations.clear();
}

void HostsCommunicator::complete(MPI_Request operation, const CollectiveRequest &request) {
  Backoff backoff(options().oversubscribed);
  const auto since = Clock::now();
  for (;;) {
    int completed = 0;
    MPI_Test(&operation, &completed, MPI_STATUS_IGNORE);
    if (completed)
      return;
    backoff.pause();
    if (backoff.isLong())
      answerAndCheck(request, since);
  }
}

void HostsCommunicator::lookAround(Mark, const CollectiveRequest &request, Clock::time_point since) const {
  answerAndCheck(request, since);
}

void HostsCommunicator::answerAndCheck(const CollectiveRequest &request, Clock::time_point since) const {
  const MpiScope allocationsAreMpis;
  throwIfEnded();
  rollCall_->answer();
  if (isLate(since))
    failLate(request);
}

void HostsCommunicator::failLate(const CollectiveRequest &request) const {
  const std::vector<bool> present = rollCall_->ask(std::min(options().graceSeconds, 2.0));
  const RankGroup &group = *request.group;
  int lowestPresent = 0, missing = -1;
  while (!present[static_cast<std::size_t>(group.rankOf(lowestPresent))])
    ++lowestPresent;
  // The lowest rank that is present reports; the others only if it does not.
  if (lowestPresent != group.member)
    std::this_thread::sleep_for(std::chrono::duration<double>(options().graceSeconds));
  for (int member = group.size - 1; member >= 0; --member)
    if (!present[static_cast<std::size_t>(group.rankOf(member))])
      missing = group.rankOf(member);
  // If all members wait, one of them waits for a rank of another group.
  if (missing < 0) {
    const auto lowest = std::find(present.begin(), present.end(), false);
    missing = lowest == present.end() ? rank() : static_cast<int>(lowest - present.begin());
  }
  throw timeoutFailure(request, missing);
}

} // namespace fsdpc::rt
