// Where the ranks of the evaluator meet.
#include "ir/eval/ranks.h"
#include "gtest/gtest.h"
#include <chrono>
#include <thread>

namespace fsdpc {
namespace {

using RankBody = std::function<void(int64_t rank)>;

void runRanks(Rendezvous &rendezvous, const RankBody &body) {
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < rendezvous.rankCount(); ++rank)
    threads.emplace_back([&, rank] {
      body(rank);
      rendezvous.leave(rank);
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(Rendezvous, DeliversAllTensorsInRankOrderWhicheverRankIsLate) {
  for (int64_t late = 0; late < 3; ++late) {
    Rendezvous rendezvous(3);
    std::vector<std::vector<double>> seen(3);
    runRanks(rendezvous, [&](int64_t rank) {
      for (int round = 0; round < 4; ++round) {
        if (rank == late)
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        HostTensor mine(Type(DType::f32, {1}), static_cast<double>(10 * round + rank));
        for (const HostTensor &tensor : rendezvous.exchange(rank, "sum", mine))
          seen[rank].push_back(tensor.values[0]);
      }
    });
    EXPECT_FALSE(static_cast<bool>(rendezvous.takeError()));
    for (const std::vector<double> &values : seen)
      EXPECT_EQ(values, (std::vector<double>{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}));
  }
}

TEST(Rendezvous, NamesTheTwoCollectivesThatDoNotMatch) {
  Rendezvous rendezvous(2);
  runRanks(rendezvous, [&](int64_t rank) {
    rendezvous.exchange(rank, rank == 0 ? "all_gather#1" : "all_reduce#2", HostTensor(Type(DType::f32, {4})));
  });
  EXPECT_EQ(toString(rendezvous.takeError()),
            "ranks issue different collectives: rank 0 is at all_gather#1 with f32[4], "
            "rank 1 is at all_reduce#2 with f32[4]");
}

TEST(Rendezvous, NamesATypeThatDiffers) {
  Rendezvous rendezvous(2);
  runRanks(rendezvous,
           [&](int64_t rank) { rendezvous.exchange(rank, "sum", HostTensor(Type(DType::f32, {rank + 1}))); });
  EXPECT_NE(toString(rendezvous.takeError()).find("rank 1 is at sum with f32[2]"), std::string::npos);
}

TEST(Rendezvous, DoesNotWaitForARankThatHasFinished) {
  Rendezvous rendezvous(2);
  runRanks(rendezvous, [&](int64_t rank) {
    if (rank == 1)
      rendezvous.exchange(rank, "sum", HostTensor(Type(DType::f32, {})));
  });
  EXPECT_EQ(toString(rendezvous.takeError()),
            "ranks issue different collectives: rank 1 is at sum with f32[], rank 0 has finished");
}

TEST(Rendezvous, AFaultOfOneRankEndsTheOthers) {
  Rendezvous rendezvous(2);
  runRanks(rendezvous, [&](int64_t rank) {
    if (rank == 0)
      rendezvous.fail("rank 0 stumbled");
    else
      rendezvous.exchange(rank, "sum", HostTensor(Type(DType::f32, {})));
  });
  EXPECT_EQ(toString(rendezvous.takeError()), "rank 0 stumbled");
}

} // namespace
} // namespace fsdpc
