// Samples of the collectives, with operands freshly written as in a step.
#include "runtime/cpu/collectives.h"
#include "runtime/calibration/benchmark.h"

#include <algorithm>

namespace fsdpc::rt {
namespace {

/// A collective with a full buffer of so many bytes. It rotates through parts of the window.
class CollectiveSample {
public:
  CollectiveSample(Benchmark &benchmark, std::int64_t fullElements, bool plainMpi)
      : b(benchmark), ranks(b.context.worldSize), shard(fullElements / ranks), full(shard * ranks), plainMpi(plainMpi) {
  }

  void run() const {
    const double bytes = 4.0 * static_cast<double>(full);
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
      return reduceScatterStart(b.context, 0, source(round), target(round, 0), shard, DType::f32, staging(round));
    });
    measure("all_reduce", bytes * ranks, full, [&](std::int64_t round) {
      return allReduceStart(b.context, 0, source(round), target(round, 0), full, DType::f32, staging(round));
    });
  }

private:
  Place source(std::int64_t round) const {
    const std::int64_t bytes = (full * 4 + 4095) / 4096 * 4096;
    return {Space::window, round % std::max<std::int64_t>(1, calibrationWindowBytes / bytes) * bytes};
  }
  /// The result, followed by the staging of the plain MPI path.
  float *target(std::int64_t round, std::int64_t offset) const { return b.floats(round, full * (1 + ranks), offset); }
  void *staging(std::int64_t round) const { return plainMpi ? target(round, full) : nullptr; }

  Benchmark &b;
  std::int64_t ranks, shard, full;
  bool plainMpi;
};

} // namespace

void calibrateCollectives(Benchmark &benchmark, bool plainMpi) {
  for (std::int64_t elements : {64, 1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 21})
    CollectiveSample(benchmark, elements, plainMpi).run();
}

} // namespace fsdpc::rt
