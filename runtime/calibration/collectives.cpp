// Samples of the collectives, with operands freshly written as in a step.
#include "runtime/cpu/collectives.h"
#include "runtime/calibration/benchmark.h"

#include <algorithm>

namespace fsdpc::rt {
namespace {

/// A collective with a full buffer of so many bytes. It rotates through parts of the window.
class CollectiveSample {
public:
  CollectiveSample(Benchmark &benchmark, std::int64_t fullElements, bool betweenHosts)
      : b(benchmark), ranks(b.context.worldSize), shard(fullElements / ranks), full(shard * ranks),
        betweenHosts(betweenHosts) {}

  void run() const {
    // As the cost model counts them (movedBytes): a rank reads its peers, or sends and receives.
    const double bytes =
        4.0 * static_cast<double>(full) * (betweenHosts ? (ranks - 1.0) / static_cast<double>(ranks) : 1);
    const auto measure = [&](const char *op, double moved, std::int64_t operand, auto start) {
      b.collective(
          op, moved,
          [&](std::int64_t round) {
            std::fill_n(b.context.at<float>(source(round)), operand, static_cast<float>(round));
          },
          [&](std::int64_t round) { wait(b.context, start(round)); });
    };
    measure("all_gather", bytes, shard, [&](std::int64_t round) {
      return allGatherStart(b.context, 0, source(round), target(round, 0), shard * 4);
    });
    measure("reduce_scatter", bytes, full, [&](std::int64_t round) {
      return reduceScatterStart(b.context, 0, source(round), target(round, 0), shard, DType::f32);
    });
    measure("all_reduce", bytes * (betweenHosts ? 2.0 : static_cast<double>(ranks)), full, [&](std::int64_t round) {
      return allReduceStart(b.context, 0, source(round), target(round, 0), full, DType::f32);
    });
  }

private:
  Place source(std::int64_t round) const {
    const std::int64_t bytes = (full * 4 + 4095) / 4096 * 4096;
    return {Space::window, round % std::max<std::int64_t>(1, calibrationWindowBytes / bytes) * bytes};
  }
  float *target(std::int64_t round, std::int64_t offset) const { return b.floats(round, full, offset); }

  Benchmark &b;
  std::int64_t ranks, shard, full;
  bool betweenHosts;
};

} // namespace

void calibrateCollectives(Benchmark &benchmark, bool betweenHosts) {
  for (std::int64_t elements : {64, 1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 21})
    CollectiveSample(benchmark, elements, betweenHosts).run();
}

} // namespace fsdpc::rt
