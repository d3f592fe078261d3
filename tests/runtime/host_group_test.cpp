// Where ranks live: what a host adds alone, who exchanges with whom, and that no sum depends on it.
#include "runtime/common/bfloat16.h"
#include "runtime/cpu/host_group.h"
#include "runtime/cpu/tree_sum.h"
#include "tests/runtime/tree_sum_definition.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <set>

namespace fsdpc::rt::test {
namespace {

std::vector<std::pair<int, int>> pairsOf(const std::vector<Subtree> &subtrees) {
  std::vector<std::pair<int, int>> pairs;
  for (const Subtree &subtree : subtrees)
    pairs.emplace_back(subtree.first, subtree.count);
  return pairs;
}

TEST(HostSubtrees, AreTheLargestThatAHostCanAddAlone) {
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(pairsOf(subtreesOf({true, true, true, true, false, false})), (Pairs{{0, 4}}));
  EXPECT_EQ(pairsOf(subtreesOf({true, true, true, false, false, false})), (Pairs{{0, 2}, {2, 1}}));
  EXPECT_EQ(pairsOf(subtreesOf({false, false, false, true, true, true})), (Pairs{{3, 1}, {4, 2}}));
  EXPECT_EQ(pairsOf(subtreesOf({false, true, true, false})), (Pairs{{1, 1}, {2, 1}}));
  EXPECT_EQ(pairsOf(subtreesOf({true, true, true})), (Pairs{{0, 3}}));
  EXPECT_EQ(pairsOf(subtreesOf({false, false})), Pairs{});
}

/// The operands of `ranks` ranks, and their sum taken apart by hosts.
template <class T>
struct SplitSum {
  static constexpr std::int64_t elements = 1100; // more than two blocks
  std::vector<std::vector<T>> values;
  std::vector<const std::byte *> operands;

  SplitSum(int ranks, std::mt19937 &random) {
    std::uniform_real_distribution<float> distribution(-3, 3);
    for (int rank = 0; rank < ranks; ++rank) {
      values.emplace_back();
      for (std::int64_t i = 0; i < elements; ++i)
        values.back().push_back(static_cast<T>(distribution(random)));
    }
    for (const auto &value : values)
      operands.push_back(reinterpret_cast<const std::byte *>(value.data()));
  }

  std::vector<T> whole(DType dtype) const {
    std::vector<T> sum(elements);
    treeSum(operands.data(), static_cast<int>(operands.size()), sum.data(), elements, dtype);
    return sum;
  }

  /// As the ranks of `reader` see it: operands of their own host, partial sums of the others.
  std::vector<T> byParts(const std::vector<int> &hosts, int reader, DType dtype) const {
    std::vector<SumPart> parts;
    std::vector<std::vector<std::byte>> partials(operands.size());
    for (const int host : std::set<int>(hosts.begin(), hosts.end())) {
      std::vector<bool> chosen;
      for (const int other : hosts)
        chosen.push_back(other == host);
      for (const Subtree &subtree : subtreesOf(chosen)) {
        const std::byte *const *own = &operands[static_cast<std::size_t>(subtree.first)];
        std::vector<std::byte> &partial = partials[static_cast<std::size_t>(subtree.first)];
        partial.resize(static_cast<std::size_t>(elements * partialByteSize(dtype)));
        sumSubtree(own, subtree.count, partial.data(), elements, dtype);
        parts.push_back({subtree, host == reader || subtree.count == 1 ? own : nullptr, partial.data()});
      }
    }
    std::sort(parts.begin(), parts.end(), [](auto &a, auto &b) { return a.members.first < b.members.first; });
    std::vector<T> sum(elements);
    sumParts(parts, sum.data(), elements, dtype);
    return sum;
  }
};

template <class T>
void expectTheSameSums(DType dtype) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 13), hostCount = 1 + static_cast<int>(random() % 4);
    std::vector<int> hosts;
    for (int rank = 0; rank < ranks; ++rank)
      hosts.push_back(static_cast<int>(random() % static_cast<unsigned>(hostCount)));
    const SplitSum<T> sum(ranks, random);
    const std::vector<T> whole = sum.whole(dtype), parts = sum.byParts(hosts, hosts[0], dtype);
    ASSERT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(T)), 0)
        << ranks << " ranks, trial " << trial;
  }
}

TEST(HostSubtrees, GiveTheBitsOfTheWholeSumWhereverRanksLive) {
  expectTheSameSums<float>(DType::f32);
  expectTheSameSums<double>(DType::f64);
  expectTheSameSums<Bfloat16>(DType::bf16);
  expectTheSameSums<std::int64_t>(DType::i64);
}

/// What every member of one group computes for itself.
struct EveryView {
  std::vector<HostGroup> views;
  EveryView(const std::vector<int> &hosts) {
    const int ranks = static_cast<int>(hosts.size());
    for (int member = 0; member < ranks; ++member)
      views.emplace_back(RankGroup{0, 1, ranks, member}, hosts);
  }
  const HostGroup &of(int member) const { return views[static_cast<std::size_t>(member)]; }

  void expectPartnersAgree() const {
    for (int owner = 0; owner < of(0).size(); ++owner)
      for (int host = 0; host < of(0).hosts(); ++host) {
        if (host == of(0).hostOf(owner))
          continue;
        const int partner = of(0).partnerOf(owner, host);
        const std::span<const int> owners = of(partner).partners();
        EXPECT_EQ(of(partner).ownHost(), host);
        EXPECT_EQ(std::count(owners.begin(), owners.end(), owner), 1);
        for (const int member : of(0).membersOf(host))
          EXPECT_EQ(of(member).slotOf(owner), of(partner).slotOf(owner)) << "a peer reads another slot";
      }
  }

  void expectWithinTheLimits() const {
    for (const HostGroup &view : views) {
      EXPECT_LE(static_cast<int>(view.partners().size()), view.maxPartners());
      std::set<int> slots;
      for (const int owner : view.partners())
        slots.insert(view.slotOf(owner));
      EXPECT_EQ(slots.size(), view.partners().size());
      int foreign = 0;
      for (int host = 0; host < view.hosts(); ++host) {
        const int subtrees = static_cast<int>(view.subtreesOf(host).size());
        EXPECT_LE(subtrees, view.maxSubtreesOfAHost());
        foreign += host == view.ownHost() ? 0 : subtrees;
      }
      EXPECT_LE(foreign, view.maxForeignSubtrees());
    }
  }

  void expectEveryHostOwnsSlices() const {
    const std::span<const int> owners = of(0).sliceOwners();
    EXPECT_EQ(static_cast<int>(owners.size()) % of(0).hosts(), 0);
    for (std::size_t i = 0; i < owners.size(); ++i)
      EXPECT_EQ(of(0).sliceOf(owners[i]), static_cast<int>(i));
  }
};

TEST(HostGroups, EveryMemberKnowsTheSamePartnersAndSlots) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int> hosts(1 + random() % 12);
    for (int &host : hosts)
      host = static_cast<int>(random() % 4);
    SCOPED_TRACE(testing::PrintToString(hosts));
    const EveryView group(hosts);
    group.expectPartnersAgree();
    group.expectWithinTheLimits();
    group.expectEveryHostOwnsSlices();
  }
}

TEST(HostGroups, SeeTheHostsOfTheirOwnRanksOnly) {
  // Ranks 0 to 3 live on one host, 4 to 7 on another; the group is {1, 5}.
  const HostGroup across({1, 4, 2, 1}, {0, 0, 0, 0, 4, 4, 4, 4});
  EXPECT_EQ(across.hosts(), 2);
  EXPECT_EQ(across.ownHost(), 1);
  const HostGroup inside({4, 1, 4, 0}, {0, 0, 0, 0, 4, 4, 4, 4});
  EXPECT_EQ(inside.hosts(), 1);
  EXPECT_TRUE(inside.partners().empty());
}

} // namespace
} // namespace fsdpc::rt::test
