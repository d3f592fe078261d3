// Collectives within groups of ranks, on one channel and on two, where the ranks are threads.
#include "tests/runtime/group_program.h"

#include <gtest/gtest.h>

#include <atomic>

namespace fsdpc::rt::test {
namespace {

const Stream::Mode bothModes[] = {Stream::Mode::inlined, Stream::Mode::threads};

TEST(Groups, OfAnAxisCoverEveryRankOnceAndCountInRankOrder) {
  for (int ranks : {1, 2, 3, 4, 6, 8, 12})
    for (const MeshAxisInfo &axis : allAxes(ranks))
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(axis.rankOf(rank, axis.memberOf(rank)), rank);
        for (int member = 0; member < axis.size; ++member) {
          const int peer = axis.rankOf(rank, member);
          EXPECT_TRUE(peer >= 0 && peer < ranks);
          EXPECT_EQ(axis.memberOf(peer), member);
          EXPECT_EQ(axis.rankOf(peer, 0), axis.rankOf(rank, 0));
        }
      }
}

TEST(Groups, GetTheirOwnResultsWhateverTheDelays) {
  for (Stream::Mode mode : bothModes)
    for (bool ownReduce : {false, true})
      for (int ranks : {2, 3, 4, 6, 8}) {
        GroupProgram program(ranks, ownReduce);
        CommunicatorOptions options;
        options.axes = program.axes;
        options.collectives = program.infos;
        ThreadRanks world(ranks, mode, program.windowBytes(), options);
        const auto seed = static_cast<unsigned>(ranks);
        // Bodies of one rank may run on two threads.
        world.whenBegun = [](int rank, std::uint64_t sequence) {
          RandomPause(static_cast<unsigned>(sequence), rank)();
        };
        world.run([&](Context &context) {
          RandomPause pause(seed, context.rank);
          program.run(context, seed, 3, pause);
        });
        EXPECT_EQ(world.failures, std::vector<std::string>(static_cast<std::size_t>(ranks))) << ownReduce;
      }
}

TEST(Groups, ChannelsDoNotWaitForEachOther) {
  // A gather whose body is blocked does not delay a reduction on the other stream.
  const CollectiveInfo infos[] = {{"all_gather", "", "", 0, -1, Channel::comm},
                                  {"all_reduce", "", "", 0, -1, Channel::reduce}};
  CommunicatorOptions options;
  options.collectives = infos;
  ThreadRanks world(2, Stream::Mode::threads, 64, options);
  std::atomic<int> reduced = 0;
  world.whenBegun = [&](int, std::uint64_t sequence) {
    while (sequence == 1 && reduced < 2)
      std::this_thread::yield();
  };
  world.run([&](Context &context) {
    float gathered[2];
    float sum = 0;
    *context.at<float>({Space::window, 0}) = 1;
    *context.at<float>({Space::window, 4}) = 2;
    const Ticket gather = allGatherStart(context, 0, {Space::window, 0}, gathered, 4);
    wait(context, allReduceStart(context, 1, {Space::window, 4}, &sum, 1, DType::f32));
    ++reduced;
    wait(context, gather);
    EXPECT_EQ(sum, 4);
    EXPECT_EQ(gathered[1], 1);
  });
  EXPECT_EQ(world.failures, std::vector<std::string>(2));
}

TEST(Groups, ATimeOutNamesTheRankThatAnotherGroupWaitsFor) {
  // Rank 3 never arrives: rank 2 waits for it, and ranks 0 and 1 wait for 2 and 3 in the groups {0, 2} and {1, 3}.
  const MeshAxisInfo axes[] = {{"shard", 2, 1}, {"replicate", 2, 2}};
  const CollectiveInfo infos[] = {{"reduce_scatter", "u", "", 0, 0}, {"all_reduce", "u", "", 0, 1}};
  CommunicatorOptions options;
  options.timeoutSeconds = 0.05;
  options.graceSeconds = 0.1;
  options.axes = axes;
  options.collectives = infos;
  for (Stream::Mode mode : bothModes) {
    ThreadRanks world(4, mode, 64, options);
    std::vector<std::string> details(4);
    world.run([&](Context &context) {
      float part = 0;
      float sum = 0;
      const Place operand{Space::window, 0};
      if (context.rank == 3)
        return;
      try {
        wait(context, reduceScatterStart(context, 0, operand, &part, 1, DType::f32));
        wait(context, allReduceStart(context, 1, operand, &sum, 1, DType::f32));
      } catch (const Failure &failure) {
        details[static_cast<std::size_t>(context.rank)] = failure.details;
      }
    });
    EXPECT_EQ(details[0], "unit=u seq=2 op=all_reduce missing=3");
    EXPECT_EQ(details[1], "unit=u seq=2 op=all_reduce missing=3");
    EXPECT_EQ(details[2], "unit=u seq=1 op=reduce_scatter missing=3");
  }
}

TEST(Tickets, AreKeptWhileOtherCollectivesRunByTheThousand) {
  for (Stream::Mode mode : bothModes) {
    ThreadRanks world(2, mode, 64);
    world.run([&](Context &context) {
      float gathered[2];
      float sum = 0;
      *context.at<float>({Space::window, 0}) = static_cast<float>(context.rank + 1);
      const Ticket carried = allGatherStart(context, 0, {Space::window, 0}, gathered, 4);
      for (int i = 0; i < 3000; ++i)
        wait(context, allReduceStart(context, 1, {Space::window, 0}, &sum, 1, DType::f32));
      wait(context, carried);
      EXPECT_EQ(gathered[0], 1);
      EXPECT_EQ(gathered[1], 2);
      EXPECT_EQ(sum, 3);
    });
    EXPECT_EQ(world.failures, std::vector<std::string>(2));
  }
}

TEST(Tickets, OfCollectivesThatWereNotStartedOrAreOutstandingAreOurs) {
  ThreadRanks world(1, Stream::Mode::inlined, 64);
  world.run([&](Context &context) {
    float sum = 0;
    const auto start = [&](int collective) {
      return allReduceStart(context, collective, {Space::window, 0}, &sum, 1, DType::f32);
    };
    EXPECT_THROW(wait(context, Ticket{}), Failure);
    EXPECT_THROW(start(16), Failure);
    const Ticket ticket = start(0);
    EXPECT_THROW(start(0), Failure);
    wait(context, ticket);
    start(0);
    EXPECT_THROW(wait(context, ticket), Failure);
  });
  EXPECT_EQ(world.failures, std::vector<std::string>(1));
}

} // namespace
} // namespace fsdpc::rt::test
