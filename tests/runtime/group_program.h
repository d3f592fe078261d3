// A program of collectives over several mesh axes, in a random order that is the same on every rank. A communicator of
// any transport must execute it correctly.
#pragma once

#include "runtime/cpu/communicator.h"
#include "runtime/cpu/cpu_context.h"
#include "tests/runtime/thread_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace fsdpc::rt::test {

/// All ways to cut the ranks into equal groups by one stride, each an axis.
inline std::vector<MeshAxisInfo> allAxes(int ranks) {
  std::vector<MeshAxisInfo> axes;
  for (int size = 1; size <= ranks; ++size)
    for (int stride = 1; size * stride <= ranks; ++stride)
      if (ranks % (size * stride) == 0)
        axes.push_back({"axis", size, stride});
  return axes;
}

class GroupProgram {
public:
  /// `ownReduce`: reductions run on the second channel.
  GroupProgram(int ranks, bool ownReduce) : axes(allAxes(ranks)) {
    const Channel reductions = ownReduce ? Channel::reduce : Channel::comm;
    for (int axis = -1; axis < static_cast<int>(axes.size()); ++axis) {
      infos.push_back({"all_gather", "", "", 0, axis, Channel::comm});
      infos.push_back({"reduce_scatter", "", "", 0, axis, reductions});
      infos.push_back({"all_reduce", "", "", 0, axis, reductions});
    }
    maxElements_ = shardElements * ranks;
  }

  std::vector<MeshAxisInfo> axes;
  std::vector<CollectiveInfo> infos;
  std::int64_t windowBytes() const { return static_cast<std::int64_t>(infos.size()) * maxElements_ * 4; }

  /// Starts every collective `rounds` times and waits in another order, for some only in the next round. Checks results
  /// after `wait` and then immediately overwrites the operand. Calls `pause` before each start and wait.
  template <class Pause>
  void run(Context &context, unsigned seed, int rounds, Pause &pause) {
    Run state{context, std::mt19937(seed), std::vector<Ticket>(infos.size()), std::vector<int>(infos.size(), -1)};
    for (std::size_t i = 0; i < infos.size(); ++i)
      state.results.emplace_back(static_cast<std::size_t>(maxElements_));
    for (int round = 0; round < rounds; ++round) {
      std::vector<int> order(infos.size());
      for (std::size_t i = 0; i < order.size(); ++i)
        order[i] = static_cast<int>(i);
      std::shuffle(order.begin(), order.end(), state.random);
      for (int collective : order) {
        pause();
        finish(state, collective); // from the round before
        start(state, collective, round);
        for (int other : order)
          if (state.random() % 8 == 0) {
            pause();
            finish(state, other);
          }
      }
    }
    cpuOf(context).communicator->drain();
    for (std::size_t i = 0; i < infos.size(); ++i)
      finish(state, static_cast<int>(i));
  }

private:
  static constexpr std::int64_t shardElements = 37;
  struct Run {
    Context &context;
    std::mt19937 random;
    std::vector<Ticket> tickets;
    std::vector<int> rounds; ///< that the collective was started in; -1: it is not outstanding
    std::vector<std::vector<float>> results = {};
  };

  MeshAxisInfo axisOf(const Context &context, int collective) const {
    const int axis = infos[static_cast<std::size_t>(collective)].axis;
    return axis < 0 ? MeshAxisInfo{"all", context.worldSize, 1} : axes[static_cast<std::size_t>(axis)];
  }
  Place operandPlace(int collective) const { return {Space::window, collective * maxElements_ * 4}; }
  static std::int64_t indexOf(int collective, int round, std::int64_t i) { return i + 1009 * collective + 7 * round; }

  void start(Run &run, int collective, int round) const {
    const auto at = static_cast<std::size_t>(collective);
    auto *operand = run.context.at<float>(operandPlace(collective));
    for (std::int64_t i = 0; i < maxElements_; ++i)
      operand[i] = contribution(run.context.rank, indexOf(collective, round, i));
    float *result = run.results[at].data();
    const Place place = operandPlace(collective);
    const std::int64_t whole = shardElements * axisOf(run.context, collective).size;
    run.rounds[at] = round;
    run.tickets[at] = collective % 3 == 0 ? allGatherStart(run.context, collective, place, result, shardElements * 4)
                      : collective % 3 == 1
                          ? reduceScatterStart(run.context, collective, place, result, shardElements, DType::f32)
                          : allReduceStart(run.context, collective, place, result, whole, DType::f32);
  }

  void finish(Run &run, int collective) const {
    const auto at = static_cast<std::size_t>(collective);
    const int round = run.rounds[at];
    if (round < 0)
      return;
    run.rounds[at] = -1;
    wait(run.context, run.tickets[at]);
    std::fill_n(run.context.at<float>(operandPlace(collective)), maxElements_, -7777.0f);
    const std::vector<float> expected = expectedResult(run.context, collective, round);
    EXPECT_EQ(std::memcmp(expected.data(), run.results[at].data(), expected.size() * 4), 0)
        << "collective " << collective << " of round " << round << " on rank " << run.context.rank;
    wait(run.context, run.tickets[at]); // a second wait returns immediately
  }

  std::vector<float> expectedResult(const Context &context, int collective, int round) const {
    const MeshAxisInfo axis = axisOf(context, collective);
    const auto of = [&](int member, std::int64_t i) {
      return contribution(axis.rankOf(context.rank, member), indexOf(collective, round, i));
    };
    std::vector<float> expected;
    if (collective % 3 == 0) {
      for (int member = 0; member < axis.size; ++member)
        for (std::int64_t i = 0; i < shardElements; ++i)
          expected.push_back(of(member, i));
      return expected;
    }
    const std::int64_t first = collective % 3 == 1 ? shardElements * axis.memberOf(context.rank) : 0;
    const std::int64_t count = collective % 3 == 1 ? shardElements : shardElements * axis.size;
    for (std::int64_t i = first; i < first + count; ++i) {
      std::vector<float> values;
      for (int member = 0; member < axis.size; ++member)
        values.push_back(of(member, i));
      expected.push_back(treeSumOf(values, 0, values.size()));
    }
    return expected;
  }

  std::int64_t maxElements_ = 0;
};

/// Sleeps up to 0.4 ms, one time in four: differently on every rank and at every moment.
class RandomPause {
public:
  RandomPause(unsigned seed, int rank) : random_(seed * 101 + static_cast<unsigned>(rank)) {}
  void operator()() {
    if (random_() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 400));
  }

private:
  std::mt19937 random_;
};

} // namespace fsdpc::rt::test
