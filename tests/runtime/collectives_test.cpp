// Collectives of the shared transport: results, guarantees of `wait`, and behavior when a rank does not arrive.
#include "runtime/cpu/collectives.h"
#include "runtime/cpu/tree_sum.h"
#include "tests/runtime/thread_ranks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace fsdpc::rt::test {
namespace {

const Stream::Mode bothModes[] = {Stream::Mode::inlined, Stream::Mode::threads};

void expectSameBits(const float *actual, const float *expected, std::int64_t count, const std::string &what) {
  EXPECT_EQ(std::memcmp(actual, expected, count * sizeof(float)), 0) << what;
}

template <class T>
void expectTreeSum(int ranks, std::int64_t elements, DType dtype, bool inPlace) {
  std::vector<std::vector<T>> data(ranks, std::vector<T>(elements));
  std::vector<T> expected(elements);
  for (std::int64_t i = 0; i < elements; ++i) {
    std::vector<T> values;
    for (int rank = 0; rank < ranks; ++rank)
      values.push_back(data[rank][i] = static_cast<T>(contribution(rank, i) * 1000));
    expected[i] = treeSumOf(values, 0, values.size());
  }
  std::vector<const std::byte *> sources;
  for (auto &values : data)
    sources.push_back(reinterpret_cast<const std::byte *>(values.data()));
  std::vector<T> separate(elements);
  T *out = inPlace ? data[ranks - 1].data() : separate.data();
  treeSum(sources.data(), ranks, out, elements, dtype);
  EXPECT_TRUE(elements == 0 || std::memcmp(out, expected.data(), elements * sizeof(T)) == 0)
      << ranks << " ranks, " << elements;
}

TEST(TreeSum, AddsInTheDesignsOrderForAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16})
    for (std::int64_t elements : {0, 1, 7, 512, 1300})
      for (bool inPlace : {false, true}) {
        expectTreeSum<float>(ranks, elements, DType::f32, inPlace);
        expectTreeSum<double>(ranks, elements, DType::f64, inPlace);
        expectTreeSum<std::int64_t>(ranks, elements, DType::i64, inPlace);
        expectTreeSum<std::int32_t>(ranks, elements, DType::i32, inPlace);
      }
}

TEST(TreeSum, TheOrderShowsInTheBits) {
  // ((1e8 + 1) + (-1e8 + 1)) loses both ones; any other order keeps one.
  const float values[] = {1e8f, 1.0f, -1e8f, 1.0f};
  std::vector<const std::byte *> sources;
  for (const float &value : values)
    sources.push_back(reinterpret_cast<const std::byte *>(&value));
  float sum = -1;
  treeSum(sources.data(), 4, &sum, 1, DType::f32);
  EXPECT_EQ(sum, 0.0f);
}

TEST(Collectives, ASlowLinkTakesItsTimeOnEveryBody) {
  CommunicatorOptions options;
  options.slowLink = {2000, 4096};
  for (Stream::Mode mode : bothModes) {
    ThreadRanks ranks(2, mode, 8192, options);
    ranks.run([](Context &context) {
      std::vector<float> out(2048);
      wait(context, allGatherStart(context, 0, {Space::window, 0}, out.data(), 4096));
      wait(context, allReduceStart(context, 1, {Space::window, 0}, out.data(), 1024, DType::f32));
      // Two collectives, and two members of 4096 bytes each.
      const double added = 2 * (2000 + 2 * 4096 / 4096.0);
      EXPECT_GE(cpuOf(context).communicator->takeTimes().communicationMicroseconds, added);
    });
    EXPECT_EQ(ranks.failures, std::vector<std::string>(2));
  }
}

TEST(TreeSum, RefusesATypeWithoutASum) {
  const float value = 1;
  const auto *source = reinterpret_cast<const std::byte *>(&value);
  float sum;
  EXPECT_THROW(treeSum(&source, 1, &sum, 1, DType::u8), Failure);
}

/// One operand of ranks x shard floats at the start of the window, and all results computed from it.
struct Step {
  static constexpr Place operand{Space::window, 0};

  explicit Step(Context &context, std::int64_t shard)
      : context(context), shard(shard), whole(shard * context.worldSize), gathered(whole), reduced(shard), all(whole) {}

  float *operandData() { return context.at<float>(operand); }
  void fill(std::int64_t round) {
    for (std::int64_t i = 0; i < whole; ++i)
      operandData()[i] = contribution(context.rank, i + round * whole);
  }
  void spoil() { std::fill_n(operandData(), whole, -7777.0f); }

  Ticket gather() { return allGatherStart(context, 0, operand, gathered.data(), shard * sizeof(float)); }
  Ticket scatter() { return reduceScatterStart(context, 1, operand, reduced.data(), shard, DType::f32); }
  Ticket reduce() { return allReduceStart(context, 2, operand, all.data(), whole, DType::f32); }

  void expectGathered(std::int64_t round) {
    std::vector<float> expected;
    for (int rank = 0; rank < context.worldSize; ++rank)
      for (std::int64_t i = 0; i < shard; ++i)
        expected.push_back(contribution(rank, i + round * whole));
    expectSameBits(gathered.data(), expected.data(), whole, "all_gather");
  }
  std::vector<float> sums(std::int64_t round) {
    std::vector<float> expected;
    for (std::int64_t i = 0; i < whole; ++i)
      expected.push_back(expectedSum(context.worldSize, i + round * whole));
    return expected;
  }
  void expectReduced(std::int64_t round) {
    expectSameBits(reduced.data(), sums(round).data() + shard * context.rank, shard, "reduce_scatter");
  }
  void expectAll(std::int64_t round) { expectSameBits(all.data(), sums(round).data(), whole, "all_reduce"); }

  Context &context;
  std::int64_t shard, whole;
  std::vector<float> gathered, reduced, all;
};

TEST(SharedCollectives, GiveTheTreeSumBitForBit) {
  for (Stream::Mode mode : bothModes)
    for (int ranks : {1, 2, 3, 4, 5, 8}) {
      const std::int64_t shard = 701;
      ThreadRanks world(ranks, mode, ranks * shard * 4);
      world.run([&](Context &context) {
        Step step(context, shard);
        step.fill(0);
        const Ticket gather = step.gather(), scatter = step.scatter(), reduce = step.reduce();
        wait(context, gather);
        wait(context, scatter);
        wait(context, reduce);
        step.expectGathered(0);
        step.expectReduced(0);
        step.expectAll(0);
      });
      for (const std::string &failure : world.failures)
        EXPECT_EQ(failure, "") << ranks;
    }
}

TEST(SharedCollectives, MayBeWaitedForInAnotherOrder) {
  for (Stream::Mode mode : bothModes) {
    ThreadRanks world(3, mode, 3 * 16 * 4);
    world.run([&](Context &context) {
      Step step(context, 16);
      step.fill(0);
      const Ticket gather = step.gather(), scatter = step.scatter();
      wait(context, scatter);
      wait(context, gather);
      step.expectGathered(0);
      step.expectReduced(0);
    });
    EXPECT_EQ(world.failures, std::vector<std::string>(3));
  }
}

TEST(SharedCollectives, GatherOntoTheOwnShardLeavesItInPlace) {
  // One rank: source and destination may be the same memory.
  ThreadRanks world(1, Stream::Mode::inlined, 8 * 4);
  world.run([&](Context &context) {
    auto *shard = context.at<float>({Space::window, 0});
    std::iota(shard, shard + 8, 1.0f);
    wait(context, allGatherStart(context, 0, {Space::window, 0}, shard, 8 * sizeof(float)));
    EXPECT_EQ(shard[7], 8.0f);
  });
  EXPECT_EQ(world.failures, std::vector<std::string>(1));
}

// One rank is late at one moment of one collective. The other ranks continue as fast as they can. At every moment,
// results must be right, and overwriting an operand immediately after `wait` must not change the result of any rank.
enum class Moment { start, body, wait };

void runWithOneLate(Stream::Mode mode, int ranks, int lateRank, std::uint64_t lateSequence, Moment moment) {
  const auto beLate = [&](int rank, std::uint64_t sequence, Moment now) {
    if (rank == lateRank && sequence == lateSequence && now == moment)
      std::this_thread::sleep_for(std::chrono::milliseconds(8));
  };
  ThreadRanks world(ranks, mode, ranks * 33 * 4);
  world.whenBegun = [&](int rank, std::uint64_t sequence) { beLate(rank, sequence, Moment::body); };
  world.run([&](Context &context) {
    Step step(context, 33);
    for (int round = 0; round < 2; ++round) {
      const auto collective = [&](std::uint64_t sequence, auto start) {
        step.fill(round);
        beLate(context.rank, sequence, Moment::start);
        const Ticket ticket = start();
        EXPECT_EQ(ticket.sequence, sequence);
        beLate(context.rank, sequence, Moment::wait);
        wait(context, ticket);
        step.spoil();
      };
      collective(3 * round + 1, [&] { return step.gather(); });
      collective(3 * round + 2, [&] { return step.scatter(); });
      collective(3 * round + 3, [&] { return step.reduce(); });
      step.expectGathered(round);
      step.expectReduced(round);
      step.expectAll(round);
    }
  });
  EXPECT_EQ(world.failures, std::vector<std::string>(ranks));
}

TEST(SharedCollectives, WaitMeansThatNobodyReadsTheOperand) {
  for (Stream::Mode mode : bothModes)
    for (int ranks : {2, 3})
      for (int late = 0; late < ranks; ++late)
        for (std::uint64_t sequence = 1; sequence <= 6; ++sequence)
          for (Moment moment : {Moment::start, Moment::body, Moment::wait})
            runWithOneLate(mode, ranks, late, sequence, moment);
}

TEST(SharedCollectives, ATimeOutNamesTheMissingRankAndTheCollective) {
  const CollectiveInfo infos[] = {{"all_gather", "layers.2", "g2", 0}, {"reduce_scatter", "layers.3", "r3", 0}};
  for (Stream::Mode mode : bothModes) {
    CommunicatorOptions options;
    options.timeoutSeconds = 0.05;
    options.graceSeconds = 0.1;
    options.collectives = infos;
    ThreadRanks world(4, mode, 4 * 8 * 4, options);
    // Rank 0 never arrives. It is the lowest missing rank, even if others are late on a busy machine.
    std::vector<std::string> details(4);
    world.run([&](Context &context) {
      Step step(context, 8);
      if (context.rank == 0)
        return;
      try {
        wait(context, step.scatter());
        ADD_FAILURE() << "no time-out";
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::timeout);
        EXPECT_FALSE(failure.everyRank);
        details[context.rank] = failure.details;
        throw;
      }
    });
    for (int rank : {1, 2, 3}) {
      EXPECT_EQ(details[rank], "unit=layers.3 seq=1 op=reduce_scatter missing=0");
      EXPECT_EQ(world.failures[rank],
                "rank 0 did not join within 0.05 s: reduce_scatter of layers.3, collective 1 of the run");
    }
  }
}

TEST(SharedCollectives, RanksThatComeToDifferentCollectivesBothSaySo) {
  const CollectiveInfo infos[] = {
      {"all_gather", "layers.2", "g2", 64}, {"reduce_scatter", "layers.3", "r3", 128}, {"all_reduce", "", "a", 4}};
  for (Stream::Mode mode : bothModes) {
    CommunicatorOptions options;
    options.collectives = infos;
    options.graceSeconds = 0;
    ThreadRanks world(3, mode, 3 * 8 * 4, options);
    std::vector<std::string> details(3);
    world.run([&](Context &context) {
      Step step(context, 8);
      step.fill(0);
      try {
        wait(context, step.reduce());
        wait(context, context.rank == 1 ? step.scatter() : step.gather());
        ADD_FAILURE() << "went on";
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::disagreement);
        details[context.rank] = failure.details;
        throw;
      }
    });
    const std::string gather = "came to all_gather of layers.2 (id g2, 64 bytes)";
    const std::string scatter = "came to reduce_scatter of layers.3 (id r3, 128 bytes)";
    EXPECT_EQ(world.failures[0], "as collective 2 of the run rank 0 " + gather + " and rank 1 " + scatter);
    EXPECT_EQ(world.failures[1], "as collective 2 of the run rank 0 " + gather + " and rank 1 " + scatter);
    EXPECT_EQ(world.failures[2], "as collective 2 of the run rank 1 " + scatter + " and rank 2 " + gather);
    EXPECT_EQ(details[0], "unit=layers.2 seq=2 op=all_gather other=1 other_unit=layers.3 other_op=reduce_scatter");
  }
}

TEST(SharedCollectives, OtherArgumentsOfTheSameCollectiveAreADisagreementToo) {
  ThreadRanks world(2, Stream::Mode::inlined, 2 * 8 * 4);
  world.run([&](Context &context) {
    Step step(context, context.rank == 0 ? 8 : 4);
    wait(context, step.gather());
  });
  for (const std::string &failure : world.failures)
    EXPECT_NE(failure.find("with other arguments"), std::string::npos) << failure;
}

TEST(SharedCollectives, DetailRecordsHashesThatCommonResultsShare) {
  std::vector<std::unique_ptr<Pulse>> pulses;
  for (int rank = 0; rank < 2; ++rank)
    pulses.push_back(std::make_unique<Pulse>(rank));
  ThreadRanks world(2, Stream::Mode::threads, 2 * 8 * 4);
  world.adjust = [&](int rank, CommunicatorOptions &options) {
    options.debug = DebugCollectives::detail;
    options.pulse = pulses[rank].get();
  };
  world.run([&](Context &context) {
    Step step(context, 8);
    step.fill(0);
    wait(context, step.gather());
    wait(context, step.scatter());
    wait(context, step.reduce());
  });
  EXPECT_EQ(world.failures, std::vector<std::string>(2));
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const auto one = pulses[0]->trace().at(sequence), other = pulses[1]->trace().at(sequence);
    ASSERT_TRUE(one && other);
    EXPECT_STREQ(one->state(), "waited");
    EXPECT_EQ(one->fingerprint, other->fingerprint);
    EXPECT_NE(one->operandHash, other->operandHash);
    EXPECT_EQ(one->resultHash == other->resultHash, one->hasCommonResult()) << sequence;
  }
}

TEST(SharedCollectives, ARankThatEndsTheRunEndsTheWaitingOnes) {
  for (Stream::Mode mode : bothModes) {
    CommunicatorOptions options;
    options.graceSeconds = 0;
    ThreadRanks world(3, mode, 3 * 8 * 4, options);
    world.run([&](Context &context) {
      Step step(context, 8);
      step.fill(0);
      if (context.rank == 1)
        return world.control().endRun(1, 4);
      try {
        wait(context, step.reduce());
        FAIL() << "waited for a rank that is gone";
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::corrupt);
        throw;
      }
    });
    EXPECT_EQ(world.failures, (std::vector<std::string>{"rank 1 ended the run", "", "rank 1 ended the run"}));
  }
}

TEST(SharedCollectives, WhatIsDiscardedHasEndedAndCountsAsNeverStarted) {
  for (Stream::Mode mode : bothModes) {
    ThreadRanks world(2, mode, 2 * 4 * 4);
    world.run([&](Context &context) {
      Step step(context, 4);
      step.fill(0);
      Ticket ticket;
      discard(context, ticket);
      ticket = step.gather();
      discard(context, ticket);
      step.expectGathered(0);
      EXPECT_EQ(ticket.sequence, 0u);
      EXPECT_THROW(wait(context, ticket), Failure);
      wait(context, step.gather());
    });
    EXPECT_EQ(world.failures, std::vector<std::string>(2));
  }
}

TEST(SharedCollectives, RunThousandsWithManyOutstanding) {
  // More than the capacity of the stream's ring, so starting has to free entries.
  constexpr std::size_t outstanding = Stream::capacity + 100;
  const std::vector<CollectiveInfo> infos(outstanding, {"all_reduce", "", "", 0});
  CommunicatorOptions options;
  options.collectives = infos;
  for (Stream::Mode mode : bothModes) {
    ThreadRanks world(2, mode, 2 * 4 * 4, options);
    world.run([&](Context &context) {
      Step step(context, 4);
      step.fill(0);
      std::vector<Ticket> tickets;
      for (std::size_t i = 0; i < outstanding; ++i)
        tickets.push_back(
            allReduceStart(context, static_cast<int>(i), Step::operand, step.all.data(), step.whole, DType::f32));
      for (Ticket ticket : tickets)
        wait(context, ticket);
      step.expectAll(0);
      for (int i = 0; i < 2000; ++i)
        wait(context, step.scatter());
      step.expectReduced(0);
    });
    EXPECT_EQ(world.failures, std::vector<std::string>(2));
  }
}

} // namespace
} // namespace fsdpc::rt::test
