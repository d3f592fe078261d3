#include "runtime/common/sampler.h"

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
  for (std::int64_t batch = 0; batch < ranks[0].batchesPerEpoch(); ++batch)
    for (int k = 0; k < microSteps; ++k)
      for (const Sampler &rank : ranks) {
        rank.rows(batch, k, rows);
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
  EXPECT_EQ(sampler.samplesInBatch(2), 4);
  EXPECT_EQ(sampler.samplesInBatch(3), 1);
}

} // namespace
} // namespace fsdpc::rt
