// The weights that a run leaves: --save_model, --save_ema and --save_onnx.
#pragma once

#include "runtime/common/job.h"
#include "runtime/common/taps.h"
#include "runtime/common/weights.h"

#include <optional>

namespace fsdpc::rt {

/// The files have their space from the start on: a disk that is full at the end does not lose what was trained.
struct FinalWeights {
  std::unique_ptr<FileTap> safetensors, averages, onnx;
};

/// Collective. A folder has the names of the weights in `loaded`; of a program with adapters it has these alone, unless
/// they are merged. Throws Failure{storage}.
FinalWeights openFinalWeights(const Job &job, const std::optional<Weights> &loaded, const std::string &outDirectory);

/// Collective: every rank gathers, rank 0 writes.
void saveFinalWeights(const Job &job, const FinalWeights &files);

} // namespace fsdpc::rt
