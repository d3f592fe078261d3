// The benchmarks that `fsdpc calibrate` runs on every rank: the runtime's own kernels and collectives, timed in sizes
// that occur in training steps. All ranks run together, because they share caches and memory.
//
// Rank 0 prints one line of JSON per sample on stdout, to which the compiler fits its table. Flops and bytes are
// counted like in the compiler's cost functions (ir/ops).
#pragma once

#include "runtime/common/platform.h"

#include <functional>

namespace fsdpc::rt {

inline constexpr std::int64_t calibrationPrivateBytes = std::int64_t{160} << 20;
inline constexpr std::int64_t calibrationWindowBytes = std::int64_t{32} << 20;

class Benchmark {
public:
  Benchmark(Platform &platform, Context &context) : platform(platform), context(context) {}

  /// Times `run(round)` and prints {"kind", "flops", "bytes", "us"}. Its operands should change with the round, so that
  /// they are not in the core's own caches.
  void compute(const char *kind, double flops, double bytes, const std::function<void(std::int64_t round)> &run);

  /// Times the exposed part of a collective. `prepare(round)` writes its operand like a step, `run(round)` starts the
  /// collective and waits. Prints {"kind": op, "bytes": the bytes that one rank reads, "us"}.
  void collective(const char *op, double bytes, const std::function<void(std::int64_t round)> &prepare,
                  const std::function<void(std::int64_t round)> &run);

  /// Floats of the private arena, `offsetElements` after the start of the round's part of `partElements` floats. Parts
  /// rotate.
  float *floats(std::int64_t round, std::int64_t partElements, std::int64_t offsetElements) const;

  Platform &platform;
  Context &context;

private:
  void print(const char *kind, double flops, double bytes, double microseconds);
};

void calibrateCompute(Benchmark &benchmark);
void calibrateCollectives(Benchmark &benchmark, bool betweenHosts);

} // namespace fsdpc::rt
