// Lookups in a table that is split over ranks, on every rank: answers, and sums of updates.
#include "tests/runtime/kernels_support.h"

#include <bit>
#include <cmath>

namespace fsdpc::rt {
namespace {

/// (r0 + r1) + (r2 + r3), ...: the sum over ranks as tree_sum.h says it.
float treeOfRanks(const std::vector<float> &ranks, std::size_t first, std::size_t count) {
  if (count == 1)
    return ranks[first];
  const std::size_t left = std::bit_floor(count - 1);
  return treeOfRanks(ranks, first, left) + treeOfRanks(ranks, first + left, count - left);
}

/// Indices of all ranks into a table, and what the ranks own of it.
struct Lookup {
  RowsShape shape;
  std::vector<std::int64_t> indices;

  /// The last rank's share ends behind the table. The ranks are `stride` apart. Few rows are looked up often.
  Lookup(int ranks, int stride, std::int64_t size, std::int64_t inner, std::int64_t perRank) {
    shape = {.size = size,
             .inner = inner,
             .count = ranks * perRank,
             .own = (size + ranks) / ranks,
             .ranks = ranks,
             .stride = stride};
    for (const float x : numbers(shape.count, 3))
      indices.push_back(static_cast<std::int64_t>(x * std::abs(x) * static_cast<float>(size))); // negative ones too
  }
  std::int64_t rowOf(std::int64_t i) const { return indices[i] < 0 ? indices[i] + shape.size : indices[i]; }
  Context contextOfMember(int member) const {
    Context c = contextOf(2);
    c.rank = member * shape.stride + shape.stride - 1;
    return c;
  }
};

const Lookup lookups[] = {{2, 1, 13, 300, 40}, {3, 2, 50, 12, 9}, {5, 1, 4, 3, 100}, {4, 4, 33, 8, 1}};

TEST(KernelsRowTables, AnswersSumToTheRowsBits) {
  for (const Lookup &lookup : lookups) {
    const RowsShape &shape = lookup.shape;
    auto table = numbers(shape.ranks * shape.own * shape.inner, 4);
    table[0] = -0.0f;
    std::vector<float> sum(static_cast<std::size_t>(shape.count * shape.inner), -0.0f);
    for (int member = 0; member < shape.ranks; ++member) {
      auto answers = unwritten(sum.size());
      gatherRows(lookup.contextOfMember(member), shape, bits(table.data() + member * shape.own * shape.inner),
                 lookup.indices.data(), bits(answers.data()));
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += answers[i];
    }
    for (std::int64_t i = 0; i < shape.count; ++i)
      for (std::int64_t j = 0; j < shape.inner; ++j)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(sum[i * shape.inner + j]),
                  std::bit_cast<std::uint32_t>(table[lookup.rowOf(i) * shape.inner + j]))
            << i << ", " << j;
  }
}

TEST(KernelsRowTables, SixteenBitsAreAnsweredToo) {
  const std::vector<std::uint16_t> shard = {1, 2, 3, 4};
  const std::vector<std::int32_t> indices = {0, 3, -1, 2};
  std::vector<std::uint16_t> answers(8, 77);
  Context c = contextOf();
  c.rank = 1;
  gatherRows(c, {.size = 4, .inner = 2, .count = 4, .own = 2, .ranks = 2}, shard.data(), indices.data(),
             answers.data());
  EXPECT_EQ(answers, (std::vector<std::uint16_t>{0x8000, 0x8000, 3, 4, 3, 4, 1, 2}));
}

TEST(KernelsRowTables, SumsHaveTheBitsOfEachRanksScatterAddReducedInATree) {
  for (const Lookup &lookup : lookups) {
    const RowsShape &shape = lookup.shape;
    const auto updates = numbers(shape.count * shape.inner, 5);
    const GatherShape local{1, shape.size, shape.inner, shape.count / shape.ranks};
    std::vector<std::vector<float>> ofRank;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      ofRank.push_back(unwritten(static_cast<std::size_t>(shape.size * shape.inner)));
      const ScratchBuffer scratch(scatterAddScratchBytes(local));
      scatterAdd(contextOf(), local, lookup.indices.data() + rank * local.count,
                 updates.data() + rank * local.count * shape.inner, ofRank.back().data(), scratch.workspace());
    }
    for (int member = 0; member < shape.ranks; ++member) {
      auto x = unwritten(static_cast<std::size_t>(shape.own * shape.inner));
      const ScratchBuffer scratch(scatterRowsScratchBytes(shape));
      scatterRows(lookup.contextOfMember(member), shape, lookup.indices.data(), updates.data(), x.data(),
                  scratch.workspace());
      EXPECT_TRUE(scratch.borderIntact());
      for (std::int64_t i = 0; i < shape.own * shape.inner; ++i) {
        const std::int64_t at = member * shape.own * shape.inner + i;
        std::vector<float> sums;
        for (const auto &sum : ofRank)
          sums.push_back(at < shape.size * shape.inner ? sum[at] : 0);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(x[i]), std::bit_cast<std::uint32_t>(treeOfRanks(sums, 0, sums.size())))
            << "member " << member << ", element " << i;
      }
    }
  }
}

} // namespace
} // namespace fsdpc::rt
