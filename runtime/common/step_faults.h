// Faults of a rank in a step, put in on purpose. Only the test build has them (FSDPC_TEST_BUILD).
//
// FSDPC_MEMORY_FAULT=RANK:STEP:BIT:NAME flips a bit of what a rank holds of a tensor (named as in held_state.h), once,
// just before the step is computed. BIT is taken modulo the number of bits. FSDPC_SLOW_RANK=RANK:MILLISECONDS delays
// each step.
#pragma once

#include "runtime/common/job.h"

namespace fsdpc::rt {

/// Called before each computation of a step.
void injectStepFaults(const Job &job, std::int64_t step);

} // namespace fsdpc::rt
