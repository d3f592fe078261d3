// State that the parts of a run (training, evaluation, prediction, saving) share.
#pragma once

#include "runtime/common/options.h"
#include "runtime/common/platform.h"
#include "runtime/common/run_log.h"
#include "runtime/common/run_page.h"
#include "runtime/common/sampler.h"

namespace fsdpc::rt {

struct Job {
  const ProgramInfo &program;
  const Functions &functions; ///< of the program, for this machine
  const Options &options;
  Platform &platform;
  Context &context;
  RunLog &log;
  EventFile &events; ///< --tensorboard
  RunPage &page;     ///< --report
  Pulse &pulse;      ///< the phase of the run, for the closing line and the watchdog

  BatchLayout layout() const {
    return {program.worldSize, context.rank, program.microBatchSize, program.gradientAccumulationSteps};
  }
  /// One micro-step over all ranks.
  BatchLayout evaluationLayout() const { return {program.worldSize, context.rank, program.microBatchSize, 1}; }
};

} // namespace fsdpc::rt
