// --tune: rank 0 times once, every rank takes its choice, and entries for another machine are ignored.
#include "runtime/common/failure.h"
#include "runtime/cuda/tuning.h"
#include "tests/emulated/thread_group.h"
#include "tests/runtime/temporary_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <optional>
#include <thread>

namespace fsdpc::rt {
namespace {

/// Candidate i takes times[i].
class FakeMatmul final : public Tunable {
public:
  FakeMatmul(std::string name, std::vector<double> times) : name(std::move(name)), times(std::move(times)) {}
  std::string key() const override { return name; }
  std::vector<Algorithm> candidates() const override {
    std::vector<Algorithm> all;
    for (std::size_t i = 0; i < times.size(); ++i)
      all.push_back({i + 1, ~std::uint64_t{0}});
    return all;
  }
  double microseconds(const Algorithm &candidate) override {
    ++measurements;
    return times[candidate[0] - 1];
  }
  void use(const Algorithm &algorithm) override { chosen = algorithm[0]; }

  int measurements = 0;
  std::uint64_t chosen = 0; ///< 0: none yet

private:
  std::string name;
  std::vector<double> times;
};

void onRanks(int size, const std::function<void(HostGroup &)> &body) {
  ThreadMeeting meeting(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ThreadGroup group(meeting, rank);
      body(group);
    });
  for (std::thread &thread : threads)
    thread.join();
}

void tune(HostGroup &group, const std::string &machine, const std::string &file, std::vector<FakeMatmul *> products) {
  Tuner tuner(machine);
  for (FakeMatmul *product : products)
    tuner.add(*product);
  tuner.choose(group, file);
}

TEST(Tuning, AllRanksTakeWhatWasFastestOnRankZeroWhichAloneMeasures) {
  const TemporaryFolder folder;
  onRanks(3, [&](HostGroup &group) {
    // On the other rank another candidate would be the fastest.
    FakeMatmul one("a", group.rank() == 0 ? std::vector<double>{3, 1, 2} : std::vector<double>{1, 2, 3});
    FakeMatmul same("a", {1, 2, 3}), other("b", {5, 6});
    tune(group, "machine", folder.path("tuning.json"), {&one, &same, &other});
    EXPECT_EQ(one.chosen, 2u);
    EXPECT_EQ(same.chosen, 2u);
    EXPECT_EQ(other.chosen, 1u);
    EXPECT_EQ(one.measurements, group.rank() == 0 ? 3 : 0);
    EXPECT_EQ(same.measurements, 0);
  });
}

TEST(Tuning, WhatTheFileHasIsNotTimedAgainAndWhatIsNewIsAdded) {
  const TemporaryFolder folder;
  const std::string file = folder.path("tuning.json");
  onRanks(1, [&](HostGroup &group) {
    FakeMatmul first("a", {2, 1});
    tune(group, "machine", file, {&first});
    FakeMatmul again("a", {1, 2}), added("b", {1, 2});
    tune(group, "machine", file, {&again, &added});
    EXPECT_EQ(again.measurements, 0);
    EXPECT_EQ(again.chosen, 2u);
    EXPECT_EQ(added.measurements, 2);
    FakeMatmul last("b", {2, 1});
    tune(group, "machine", file, {&last});
    EXPECT_EQ(last.measurements, 0);
  });
}

TEST(Tuning, AFileOfAnotherMachineOrOfNoTableIsReplaced) {
  const TemporaryFolder folder;
  const std::string file = folder.path("tuning.json");
  onRanks(1, [&](HostGroup &group) {
    FakeMatmul before("a", {2, 1}), after("a", {1, 2}), whole("a", {2, 1});
    tune(group, "older library", file, {&before});
    tune(group, "newer library", file, {&after});
    EXPECT_EQ(after.measurements, 2);
    EXPECT_EQ(after.chosen, 1u);
    std::ofstream(file) << "{\"schema\":\"fsdpc.tuning/1\",";
    tune(group, "newer library", file, {&whole});
    EXPECT_EQ(whole.measurements, 2);
    EXPECT_EQ(whole.chosen, 2u);
  });
}

TEST(Tuning, RanksOfDifferentMachinesDisagree) {
  const TemporaryFolder folder;
  onRanks(3, [&](HostGroup &group) {
    FakeMatmul product("a", {1, 2});
    std::optional<Failure> failure;
    try {
      tune(group, group.rank() == 2 ? "another device" : "machine", folder.path("tuning.json"), {&product});
    } catch (const Failure &thrown) {
      failure = thrown;
    }
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, ExitCode::disagreement);
    EXPECT_EQ(failure->details, "differs=tuning other=2");
    EXPECT_TRUE(failure->everyRank);
    EXPECT_EQ(product.chosen, 0u);
  });
}

TEST(Tuning, AFileThatCannotBeWrittenCostsNothingButTheNextRunsTime) {
  onRanks(1, [&](HostGroup &group) {
    FakeMatmul product("a", {2, 1});
    tune(group, "machine", "/nonexistent/tuning.json", {&product});
    EXPECT_EQ(product.chosen, 2u);
  });
}

TEST(TuningTable, ReadsBackAsItWasWrittenAndRefusesWhatIsNone) {
  const TuningTable table{"a \"device\", library 1",
                          {{"matmul 1 2", {1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}}, {"b", {}}}};
  const std::string text = table.toJson();
  const TuningTable back = TuningTable::fromJson(text, "here");
  EXPECT_EQ(back.machine, table.machine);
  EXPECT_EQ(back.choices, table.choices);
  for (const char *bad : {"", "{}", "[]", R"({"schema":"fsdpc.tuning/2","machine":"m","algorithms":{}})",
                          R"({"schema":"fsdpc.tuning/1","machine":"m","algorithms":{"a":"12"}})",
                          R"({"schema":"fsdpc.tuning/1","machine":"m","algorithms":{}} x)"})
    EXPECT_THROW(TuningTable::fromJson(bad, "here"), Failure) << bad;
}

} // namespace
} // namespace fsdpc::rt
