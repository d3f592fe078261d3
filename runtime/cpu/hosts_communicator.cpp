#include "runtime/cpu/hosts_communicator.h"

#include "runtime/cpu/allocation_guard.h"
#include "runtime/cpu/backoff.h"

#include <algorithm>
#include <sched.h>
#include <thread>
#include <utility>

namespace fsdpc::rt {
namespace {

constexpr int partTag = 1;

int rankIn(MPI_Comm communicator) {
  int rank;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

/// Rounds of all collectives of a channel as one ascending number.
std::uint64_t roundMark(const CollectiveRequest &request, std::int64_t round) {
  return request.sequence << 24 | static_cast<std::uint64_t>(round + 1);
}

} // namespace

HostsCommunicator::HostsCommunicator(MPI_Comm world, HostMemory memory, CommunicatorOptions givenOptions)
    : SharedCommunicator(rankIn(world), *memory.control, memory.windows, std::move(givenOptions)),
      memory_(std::move(memory)) {
  for (const RankGroup &group : groups())
    hostGroups_.emplace_back(group, memory_.hostOfRank);
  const int channels = channelsOf(options().collectives);
  halfBytes_ = memory_.linkBytes / (2 * channels) / cacheLineBytes * cacheLineBytes;
  std::for_each(hostGroups_.begin(), hostGroups_.end(), [this](const HostGroup &group) { checkLink(group); });
  for (int channel = 0; channel < channels; ++channel) {
    channels_[static_cast<std::size_t>(channel)].linkOffset = channel * 2 * halfBytes_;
    openChannel(channel, world);
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

void HostsCommunicator::checkLink(const HostGroup &group) const {
  if (group.hosts() == 1 || elementsPerRound(group, DType::f64) > 0)
    return;
  throw Failure(ExitCode::incompatible,
                "the ranks are spread over the hosts in so irregular a way that a host would have to send sums of " +
                    std::to_string(group.maxSubtreesOfAHost()) +
                    " parts; give each host the same number of consecutive ranks (mpirun --map-by ppr:N:node)",
                true);
}

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
