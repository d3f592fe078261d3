// What the parts of a run (training, evaluation, prediction, saving) share.
#pragma once

#include "runtime/common/options.h"
#include "runtime/common/platform.h"
#include "runtime/common/run_log.h"
#include "runtime/common/sampler.h"

namespace fsdpc::rt {

/// Where the run is: the closing line of a failure names it.
struct RunPosition {
  std::int64_t step = 0; ///< from 1; 0 outside of training
};

struct Job {
  const ProgramInfo &program;
  const Options &options;
  Platform &platform;
  Context &context;
  RunLog &log;
  RunPosition &position;

  BatchLayout layout() const {
    return {program.worldSize, context.rank, program.microBatchSize, program.gradientAccumulationSteps};
  }
  /// One micro-step over all ranks.
  BatchLayout evaluationLayout() const { return {program.worldSize, context.rank, program.microBatchSize, 1}; }
};

} // namespace fsdpc::rt
