#include "runtime/checkpoint/requests.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace fsdpc::rt {
namespace {

std::atomic<int> caughtSignal{0};
static_assert(std::atomic<int>::is_always_lock_free, "written by a signal handler");

extern "C" void noteSignal(int number) {
  int none = 0;
  caughtSignal.compare_exchange_strong(none, number);
}

bool seesEveryRank(HeartbeatPage *page, int worldSize) {
  for (int rank = 0; page && rank < worldSize; ++rank)
    if (!page->of(rank).isSeen())
      return false;
  return page != nullptr;
}

} // namespace

void catchStopSignals() {
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) {
    struct sigaction action{};
    action.sa_handler = noteSignal;
    action.sa_flags = SA_RESTART | (number == SIGINT ? SA_RESETHAND : 0);
    ::sigaction(number, &action, nullptr);
  }
}

int stopSignal() { return caughtSignal.load(std::memory_order_relaxed); }

RunRequests::RunRequests(Platform &platform) : platform(platform) {
  HeartbeatPage *shared = platform.heartbeats();
  // A rank is seen after its first heartbeat, which is before this exchange.
  platform.barrier();
  if (platform.maxOverRanks(!seesEveryRank(shared, platform.worldSize())) == 0)
    page = shared;
}

std::uint8_t RunRequests::atBoundary(std::uint8_t wanted) {
  if (platform.worldSize() == 1)
    return wanted;
  if (!page) {
    // Counts of ranks, one in each half.
    const std::int64_t half = std::int64_t{1} << 32;
    const std::int64_t counts =
        platform.sumOverRanks((wanted & stopRequest ? half : 0) + (wanted & saveRequest ? 1 : 0));
    return static_cast<std::uint8_t>((counts % half > 0 ? saveRequest : 0) | (counts / half > 0 ? stopRequest : 0));
  }
  ++boundary;
  if (wanted != 0)
    page->ask(boundary + 1, wanted);
  return page->askedFor(boundary);
}

} // namespace fsdpc::rt
