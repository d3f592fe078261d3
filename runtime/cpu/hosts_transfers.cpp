// The transfers of HostsCommunicator: what its header says of each op, in rounds.
#include "runtime/cpu/allocation_guard.h"
#include "runtime/cpu/hosts_communicator.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::rt {
namespace {

/// Rounds are multiples of so many elements, so that slots of every type begin on a cache line.
constexpr std::int64_t roundGranule = 16;

std::int64_t roundsFor(std::int64_t amount, std::int64_t perRound) { return (amount + perRound - 1) / perRound; }

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

std::int64_t HostsCommunicator::elementsPerRound(const HostGroup &group, DType dtype) const {
  // Also enough for the totals of an all_reduce: one of the rank's own and one per partner.
  const std::int64_t slots = group.maxForeignSubtrees() + group.maxPartners() * group.maxSubtreesOfAHost();
  return halfBytes_ / (slots * partialByteSize(dtype)) / roundGranule * roundGranule;
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
  const bool alone = group.isAlone();
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
  if (group.isAlone())
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
  for (const HostSubtree &part : group.subtrees()) {
    if (part.host == group.ownHost())
      continue;
    const std::int64_t width = part.members.count == 1 ? byteSize(request.dtype) : partialByteSize(request.dtype);
    receive(request, slot, elements * width, group.partnerOf(group.ownMember(), part.host),
            stateOf(request).receives[round % 2]);
    slot += slotBytes;
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
  for (const auto &[members, host] : group.subtrees()) {
    const bool isOwn = host == group.ownHost(), isOperand = isOwn || members.count == 1;
    const std::byte **operands = &state.operands[static_cast<std::size_t>(members.first)];
    if (!isOwn && isOperand)
      *operands = slot;
    state.parts.push_back({members, isOperand ? operands : nullptr, slot});
    if (!isOwn)
      slot += slices.perRound * partialByteSize(request.dtype);
  }
  sumParts(state.parts, total + round * slices.perRound * width, elements, request.dtype);
}

// ---- all_reduce ----

void HostsCommunicator::allReduce(const CollectiveRequest &request) {
  const HostGroup &group = hostsOf(request);
  const auto owners = static_cast<std::int64_t>(group.sliceOwners().size());
  const std::int64_t share = roundsFor(request.elements, owners * roundGranule) * roundGranule;
  const std::int64_t length = std::min(elementsPerRound(group, request.dtype), share);
  const bool alone = group.isAlone();
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
  const bool alone = group.isAlone();
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

} // namespace fsdpc::rt
