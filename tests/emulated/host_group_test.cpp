// Ranks of one host share its cores. They are recognized by the host's name, not by the devices that each of them sees.
#include "tests/emulated/thread_group.h"

#include <gtest/gtest.h>

#include <thread>

namespace fsdpc::rt {
namespace {

std::vector<int> countsOf(const std::vector<std::string> &hostNames) {
  ThreadMeeting meeting(static_cast<int>(hostNames.size()));
  std::vector<int> counts(hostNames.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < hostNames.size(); ++rank)
    ranks.emplace_back([&, rank] {
      ThreadGroup group(meeting, static_cast<int>(rank));
      counts[rank] = ranksOfHost(group, hostNames[rank]);
    });
  for (std::thread &rank : ranks)
    rank.join();
  return counts;
}

TEST(RanksOfHost, AreThoseWithItsName) {
  EXPECT_EQ(countsOf({"a"}), (std::vector<int>{1}));
  EXPECT_EQ(countsOf({"a", "a", "a", "a"}), (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(countsOf({"a", "b", "a", "bb"}), (std::vector<int>{2, 1, 2, 1}));
}

TEST(RanksOfHost, MayHaveLongNames) {
  const std::string host(300, 'x');
  EXPECT_EQ(countsOf({host, host, "y"}), (std::vector<int>{2, 2, 1}));
}

} // namespace
} // namespace fsdpc::rt
