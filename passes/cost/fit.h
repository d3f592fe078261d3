// From samples that `fsdpc calibrate` measured to a hardware table.
#pragma once

#include "passes/cost/hardware.h"

namespace fsdpc {

/// One line of what the calibration program prints: a class of nodes ("loop_memory" and "loop_flops" for the two sides
/// of a loop's roofline) or a collective, with what it did and how long it took.
struct CostSample {
  std::string kind;
  double flops = 0;
  double bytes = 0;
  double microseconds = 0;
};

/// One JSON object per line.
llvm::Expected<std::vector<CostSample>> readSamples(llvm::StringRef text);

/// Fits microseconds = overhead + work / rate per kind, every sample with the same relative weight; `base` keeps the
/// figures of kinds without samples. `shared`: compute, and collectives through shared memory (the node-local link);
/// `mpi`: collectives through plain MPI (the network).
Hardware fitHardware(Hardware base, llvm::ArrayRef<CostSample> shared, llvm::ArrayRef<CostSample> mpi);

} // namespace fsdpc
