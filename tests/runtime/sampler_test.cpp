#include "runtime/common/training_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace fsdpc::rt {
namespace {

/// All samples of an epoch in global order: batches, micro-steps, ranks.
std::vector<std::int64_t> epochOrder(std::int64_t samples, int worldSize, std::int64_t microBatch, int microSteps,
                                     bool shuffle, bool dropLast, std::int64_t epoch = 0, std::uint64_t seed = 7) {
  std::vector<Sampler> ranks;
  for (int rank = 0; rank < worldSize; ++rank) {
    const SampleOrder order({{0, {samples}, 1}}, {shuffle, 0, seed});
    ranks.emplace_back(order, BatchLayout{worldSize, rank, microBatch, microSteps}, dropLast);
  }
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(microBatch));
  for (std::int64_t batch = 0; batch < ranks[0].batchesFrom(0); ++batch)
    for (int k = 0; k < microSteps; ++k)
      for (Sampler &rank : ranks) {
        rank.rows(epoch, batch * rank.globalBatch(), k, rows);
        order.insert(order.end(), rows.begin(), rows.end());
      }
  return order;
}

TEST(SamplerOrder, IsTheSameForEveryWorldSizeAndAccumulation) {
  const auto one = epochOrder(100, 1, 8, 1, true, true);
  EXPECT_EQ(epochOrder(100, 2, 4, 1, true, true), one);
  EXPECT_EQ(epochOrder(100, 4, 2, 1, true, true), one);
  EXPECT_EQ(epochOrder(100, 2, 2, 2, true, true), one);
  EXPECT_EQ(one.size(), 96u);
}

TEST(SamplerOrder, AShuffledEpochIsAPermutationThatSeedAndEpochChoose) {
  auto order = epochOrder(1000, 2, 5, 1, true, true);
  EXPECT_NE(order, epochOrder(1000, 2, 5, 1, true, true, 1));
  EXPECT_NE(order, epochOrder(1000, 2, 5, 1, true, true, 0, 8));
  EXPECT_EQ(order, epochOrder(1000, 2, 5, 1, true, true));
  std::sort(order.begin(), order.end());
  for (std::int64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(SamplerOrder, ThePermutationIsUniformOnThreeSamples) {
  int counts[3][3] = {};
  for (int epoch = 0; epoch < 3000; ++epoch) {
    const auto order = epochOrder(3, 1, 1, 1, true, true, epoch);
    for (std::size_t position = 0; position < 3; ++position)
      ++counts[position][order[position]];
  }
  for (const auto &row : counts)
    for (const int count : row)
      EXPECT_NEAR(count, 1000, 130); // five standard deviations
}

TEST(SamplerOrder, WithoutDropLastEverySampleComesOnceAndTheRestIsPadding) {
  auto order = epochOrder(13, 2, 4, 1, true, false);
  EXPECT_EQ(order.size(), 16u);
  EXPECT_EQ(std::count(order.begin(), order.end(), Sampler::padding), 3);
  EXPECT_EQ(std::count(order.begin() + 13, order.end(), Sampler::padding), 3);
  std::sort(order.begin(), order.end());
  for (std::int64_t i = 0; i < 13; ++i)
    EXPECT_EQ(order[static_cast<std::size_t>(3 + i)], i);
}

TEST(SamplerOrder, UnshuffledIsTheOrderOfTheData) {
  std::vector<std::int64_t> expected(12);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(epochOrder(13, 2, 2, 1, false, true), expected);
  const Sampler sampler(SampleOrder(13), {2, 0, 2, 1}, false);
  EXPECT_EQ(sampler.samplesInBatch(8), 4);
  EXPECT_EQ(sampler.samplesInBatch(12), 1);
}

std::vector<std::int64_t> positionsOf(SampleOrder order, std::int64_t epoch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < order.samples(); ++i)
    samples.push_back(order.at(epoch, i));
  return samples;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<std::int64_t> countedTo(std::int64_t end) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(end));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// A data set in shards of 40, 10, 30 and 20 samples.
const SampleSource fourShards = {0, {40, 50, 80, 100}, 1};

TEST(SampleOrder, InWindowsEveryEpochIsAnotherPermutation) {
  const SampleOrder order({fourShards}, {true, 16, 3});
  EXPECT_EQ(sorted(positionsOf(order, 0)), countedTo(100));
  EXPECT_EQ(sorted(positionsOf(order, 7)), countedTo(100));
  EXPECT_NE(positionsOf(order, 0), positionsOf(order, 7));
  EXPECT_NE(positionsOf(order, 0), positionsOf(SampleOrder({fourShards}, {true, 16, 4}), 0));
}

TEST(SampleOrder, AWindowIsOfShardsThatFollowEachOtherInTheOrderOfTheEpoch) {
  std::vector<int> firstShards;
  for (int epoch = 0; epoch < 20; ++epoch) {
    const auto samples = positionsOf(SampleOrder({fourShards}, {true, 10, 3}), epoch);
    const auto shardOf = [](std::int64_t sample) { return sample < 40 ? 0 : sample < 50 ? 1 : sample < 80 ? 2 : 3; };
    // All shards are multiples of the window, so that no window has samples of two.
    for (std::size_t i = 0; i < samples.size(); ++i)
      EXPECT_EQ(shardOf(samples[i]), shardOf(samples[i / 10 * 10]));
    firstShards.push_back(shardOf(samples[0]));
  }
  EXPECT_NE(sorted({firstShards.begin(), firstShards.end()}).front(),
            sorted({firstShards.begin(), firstShards.end()}).back());
}

TEST(SampleOrder, AnyPositionCanBeAskedInAnyOrder) {
  SampleOrder forward({fourShards}, {true, 16, 3}), backward({fourShards}, {true, 16, 3});
  const auto samples = positionsOf(forward, 2);
  for (std::int64_t i = 99; i >= 0; --i) {
    EXPECT_EQ(backward.at(2, i), samples[static_cast<std::size_t>(i)]);
    backward.at(1, i / 2);
  }
}

TEST(SampleOrder, AWindowOfAllSamplesPermutesThemUniformlyWhateverTheShards) {
  EXPECT_EQ(positionsOf(SampleOrder({fourShards}, {true, 100, 3}), 1),
            positionsOf(SampleOrder({{0, {100}, 1}}, {true, 0, 3}), 1));
}

TEST(SampleOrder, SourcesAreMixedByWeightInEveryRound) {
  // 7 of 10 samples of the first source, which has 60 and so repeats some; the second has 40 and gives 30.
  const std::vector<SampleSource> sources = {{0, {60}, 0.7}, {60, {40}, 0.3}};
  SampleOrder order(sources, {});
  EXPECT_EQ(order.samples(), 100);
  const auto samples = positionsOf(order, 0);
  for (std::int64_t round = 0; round < 10; ++round)
    EXPECT_EQ(std::count_if(samples.begin() + round * 10, samples.begin() + round * 10 + 10,
                            [](std::int64_t sample) { return sample < 60; }),
              7);
  EXPECT_EQ(std::count(samples.begin(), samples.end(), 0), 2);
  EXPECT_EQ(std::count(samples.begin(), samples.end(), 59), 1);
  EXPECT_EQ(std::count(samples.begin(), samples.end(), 89), 1);
  EXPECT_EQ(std::count(samples.begin(), samples.end(), 90), 0);
  // The second epoch goes on where the sources stopped.
  EXPECT_EQ(order.at(1, 0), 10);
  EXPECT_EQ(order.text(), "7 of 10: 60; 3 of 10: 40");
}

TEST(SampleOrder, SourcesAreSpreadEvenlyAndShuffledEachOnItsOwn) {
  const std::vector<SampleSource> sources = {{0, {50}, 1}, {50, {50}, 1}};
  const auto samples = positionsOf(SampleOrder(sources, {true, 0, 9}), 0);
  std::vector<std::int64_t> first, second;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i] < 50, i % 2 == 0);
    (samples[i] < 50 ? first : second).push_back(samples[i] % 50);
  }
  EXPECT_EQ(sorted(first), countedTo(50));
  EXPECT_EQ(sorted(second), countedTo(50));
  EXPECT_NE(first, second);
}

TEST(SampleOrder, TextTellsOrdersApart) {
  EXPECT_EQ(SampleOrder({fourShards}, {}).text(), "100");
  EXPECT_EQ(SampleOrder({fourShards}, {true, 0, 1}).text(), "100 in windows of 100");
  EXPECT_EQ(SampleOrder({fourShards}, {true, 16, 1}).text(), "100 in windows of 16 from 4 shards");
}

TEST(SampleOrder, ALargeDataSetIsShuffledWithoutMemoryForEverySample) {
  const std::int64_t samples = std::int64_t{1} << 40;
  SampleOrder order({{0, {samples / 2, samples}, 1}}, {true, 0, 1});
  EXPECT_EQ(order.text(), "1099511627776 in windows of 1048576 from 2 shards");
  EXPECT_LT(order.at(3, samples - 1), samples);
  EXPECT_GE(order.at(3, samples - 1), 0);
}

/// The samples of steps (from, to], as one rank with this global batch takes them.
std::vector<std::int64_t> trained(TrainingOrder order, Sampler sampler, std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> all, rows(static_cast<std::size_t>(sampler.globalBatch()));
  for (std::int64_t step = from + 1; step <= to; ++step) {
    const TrainingOrder::Batch batch = order.at(step);
    sampler.rows(batch.epoch, batch.firstSample, 0, rows);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(TrainingOrder, AResumedRunWithAnotherGlobalBatchSkipsAndRepeatsNothing) {
  const auto sampler = [](std::int64_t batch) {
    return Sampler(SampleOrder({{0, {60}, 1}}, {true, 0, 5}), {1, 0, batch, 1}, true);
  };
  const auto whole = trained(TrainingOrder(sampler(4), 0, {}, false), sampler(4), 0, 30);
  for (std::int64_t stop : {0, 4, 14, 15, 20}) {
    const TrainingOrder before(sampler(4), 0, {}, false);
    auto both = trained(before, sampler(4), 0, stop);
    const SamplePosition position = before.after(stop);
    for (std::int64_t batch : {2, 4}) {
      const TrainingOrder after(sampler(batch), stop, position, false);
      auto all = both;
      const auto rest = trained(after, sampler(batch), stop, stop + (120 - stop * 4) / batch);
      all.insert(all.end(), rest.begin(), rest.end());
      EXPECT_EQ(all, whole) << stop << " steps, then batches of " << batch;
      EXPECT_EQ(after.stepsUntil(2), stop + (120 - stop * 4) / batch);
    }
  }
}

TEST(TrainingOrder, ARestOfAnEpochThatFillsNoBatchIsLeftOut) {
  const Sampler sampler(SampleOrder(10), {1, 0, 4, 1}, true);
  const TrainingOrder order(sampler, 3, {0, 8}, false);
  EXPECT_EQ(order.at(4).epoch, 1);
  EXPECT_EQ(order.at(4).firstSample, 0);
  EXPECT_TRUE(order.at(4).beginsEpoch);
  EXPECT_EQ(order.stepsUntil(1), 3);
  EXPECT_EQ(order.stepsUntil(2), 5);
}

} // namespace
} // namespace fsdpc::rt
