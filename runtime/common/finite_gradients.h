// Finds the gradient that made a loss or norm non-finite.
#pragma once

#include "runtime/common/job.h"

namespace fsdpc::rt {

/// Collective. Returns "'fc1.weight' of unit fc1" for the first parameter whose gradient has a non-finite element, and
/// "" if all are finite. Called after micro_step, it reads the gradients. Programs whose optimizers already used and
/// released them in micro_step (ProgramInfo::stashesGradients) call it after update, and it reads the updated
/// parameters instead.
std::string firstNonFiniteGradient(const Job &job);

} // namespace fsdpc::rt
