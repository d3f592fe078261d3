// What `fsdpc calibrate` runs on every rank: the runtime's own kernels and collectives, timed in the sizes that
// training steps have, all ranks at once because they share caches and memory.
//
// One line of JSON per sample on rank 0's stdout, for the compiler to fit its table to. Flops and bytes are counted as
// the compiler's cost functions count them (ir/ops).
#pragma once

#include "runtime/common/platform.h"

#include <functional>

namespace fsdpc::rt {

inline constexpr std::int64_t calibrationPrivateBytes = std::int64_t{160} << 20;
inline constexpr std::int64_t calibrationWindowBytes = std::int64_t{32} << 20;

class Benchmark {
public:
  Benchmark(Platform &platform, Context &context) : platform(platform), context(context) {}

  /// Times `run(round)`, whose operands should move on with the round so that they come from beyond the core's own
  /// caches, and prints {"kind", "flops", "bytes", "us"}.
  void compute(const char *kind, double flops, double bytes, const std::function<void(std::int64_t round)> &run);

  /// Times what is exposed of a collective: `prepare(round)` writes its operand as a step would, `run(round)` starts
  /// and waits. Prints {"kind": op, "bytes": what one rank reads, "us"}.
  void collective(const char *op, double bytes, const std::function<void(std::int64_t round)> &prepare,
                  const std::function<void(std::int64_t round)> &run);

  /// `elements` floats of the private arena, `slot` places after the start of the round's part; parts rotate.
  float *floats(std::int64_t round, std::int64_t partElements, std::int64_t offsetElements) const;

  Platform &platform;
  Context &context;

private:
  void print(const char *kind, double flops, double bytes, double microseconds);
};

void calibrateCompute(Benchmark &benchmark);
void calibrateCollectives(Benchmark &benchmark, bool plainMpi);

} // namespace fsdpc::rt
