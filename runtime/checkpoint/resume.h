// Going on from a checkpoint.
#pragma once

#include "runtime/checkpoint/manifest.h"
#include "runtime/common/options.h"
#include "runtime/common/platform.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdpc::rt {

struct ResumedRun {
  std::string path; ///< of the checkpoint
  TrainingState state;
  double loadMilliseconds = 0; ///< until the last rank had read and verified its part
};

/// Collective. The checkpoints that --resume may use, the first first; the same on every rank. Empty: the run starts
/// anew. Throws Failure{usage} if --resume names none.
std::vector<std::string> resumeCandidates(const Options &options, Platform &platform);

/// Collective. Loads the first candidate that is intact, or, if --resume names one, that one. Says loudly which were
/// damaged. Throws, on every rank, Failure{corrupt} if none is intact, and Failure{incompatible} if one is of another
/// model.
ResumedRun resumeFrom(const std::vector<std::string> &candidates, const ProgramInfo &program, const Options &options,
                      Platform &platform, const Context &context, Pulse &pulse);

/// Throws Failure{incompatible, everyRank} unless training on `samples` samples (0: a fixed batch) in the order of
/// `options`, which `order` describes (trainer.h: orderText), goes on where the checkpoint was, with no sample skipped
/// or repeated. Sets options.seed to that of the checkpoint if it was not given.
void requireSameOrder(const ResumedRun &resumed, std::int64_t samples, const std::string &order, Options &options);

} // namespace fsdpc::rt
