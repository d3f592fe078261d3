// The watchdog's thread next to a working rank.
#include "runtime/common/watchdog.h"
#include "runtime/cpu/collectives.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/thread_ranks.h"

#include <gtest/gtest.h>

#include <memory>

namespace fsdpc::rt {
namespace {

TEST(Watchdog, LooksWhileItsRankWorksAndLeavesARunAloneThatGetsOn) {
  constexpr int ranks = 2;
  FakeWorld world(ranks);
  std::vector<std::unique_ptr<Pulse>> pulses;
  for (int rank = 0; rank < ranks; ++rank)
    pulses.push_back(std::make_unique<Pulse>(rank));
  test::ThreadRanks threads(ranks, Stream::Mode::threads, 64);
  threads.adjust = [&](int rank, CommunicatorOptions &options) {
    options.debug = DebugCollectives::detail;
    options.pulse = pulses[static_cast<std::size_t>(rank)].get();
  };
  threads.run([&](Context &context) {
    Pulse &mine = *pulses[static_cast<std::size_t>(context.rank)];
    FakePlatform platform(world, context.rank);
    Watchdog watchdog(mine, {}, Launcher{});
    watchdog.attach(platform);
    const std::int64_t attached = mine.line().aliveNanoseconds;
    float &looked = *context.at<float>({Space::window, 0}), all = 0;
    for (int step = 1; all < ranks; ++step) {
      mine.setStep(step);
      mine.enter(step % 2 == 0 ? Phase::evaluation : Phase::step);
      looked = mine.line().aliveNanoseconds > attached;
      wait(context, allReduceStart(context, 0, {Space::window, 0}, &all, 1, DType::f32));
      EXPECT_EQ(mine.trace().waitingFor(), 0u);
    }
    EXPECT_EQ(mine.lineOf(1 - context.rank)->arrivals, mine.line().arrivals);
    watchdog.detach();
    EXPECT_EQ(mine.lineOf(1 - context.rank), nullptr);
  });
  EXPECT_EQ(threads.failures, std::vector<std::string>(ranks));
  EXPECT_EQ(world.heartbeats().ended(), 0u);
}

} // namespace
} // namespace fsdpc::rt
