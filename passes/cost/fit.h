// Builds a hardware table from samples that `fsdpc calibrate` measured.
#pragma once

#include "passes/cost/hardware.h"

namespace fsdpc {

/// One line of the calibration program's output: a class of nodes ("loop_memory" and "loop_flops" for the two sides of
/// a loop's roofline) or a collective, with its work and duration.
struct CostSample {
  std::string kind;
  double flops = 0;
  double bytes = 0;
  double microseconds = 0;
};

/// One JSON object per line.
llvm::Expected<std::vector<CostSample>> readSamples(llvm::StringRef text);

/// Fits microseconds = overhead + work / rate per kind, with equal relative weight for every sample. `base` provides
/// the values of kinds without samples. `shared`: compute, and collectives through shared memory (the node-local link);
/// `mpi`: collectives between ranks that count as hosts (the network).
Hardware fitHardware(Hardware base, llvm::ArrayRef<CostSample> shared, llvm::ArrayRef<CostSample> mpi);

} // namespace fsdpc
