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
    ranks.emplace_back(samples, BatchLayout{worldSize, rank, microBatch, microSteps}, shuffle, dropLast, seed);
    ranks.back().startEpoch(epoch);
  }
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(microBatch));
  for (std::int64_t batch = 0; batch < ranks[0].batchesFrom(0); ++batch)
    for (int k = 0; k < microSteps; ++k)
      for (const Sampler &rank : ranks) {
        rank.rows(batch * rank.globalBatch(), k, rows);
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
  const Sampler sampler(13, {2, 0, 2, 1}, false, false, 0);
  EXPECT_EQ(sampler.samplesInBatch(8), 4);
  EXPECT_EQ(sampler.samplesInBatch(12), 1);
}

/// The samples of steps (from, to], as one rank with this global batch takes them.
std::vector<std::int64_t> trained(TrainingOrder order, Sampler sampler, std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> all, rows(static_cast<std::size_t>(sampler.globalBatch()));
  for (std::int64_t step = from + 1; step <= to; ++step) {
    const TrainingOrder::Batch batch = order.at(step);
    if (batch.beginsEpoch)
      sampler.startEpoch(batch.epoch);
    sampler.rows(batch.firstSample, 0, rows);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(TrainingOrder, AResumedRunWithAnotherGlobalBatchSkipsAndRepeatsNothing) {
  const auto sampler = [](std::int64_t batch) { return Sampler(60, {1, 0, batch, 1}, true, true, 5); };
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
  const Sampler sampler(10, {1, 0, 4, 1}, false, true, 0);
  const TrainingOrder order(sampler, 3, {0, 8}, false);
  EXPECT_EQ(order.at(4).epoch, 1);
  EXPECT_EQ(order.at(4).firstSample, 0);
  EXPECT_TRUE(order.at(4).beginsEpoch);
  EXPECT_EQ(order.stepsUntil(1), 3);
  EXPECT_EQ(order.stepsUntil(2), 5);
}

} // namespace
} // namespace fsdpc::rt
