// Which gradient is to blame for a loss or norm that is not finite.
#pragma once

#include "runtime/common/job.h"

namespace fsdpc::rt {

/// Collective, behind micro_step and with the gradients that it left: "'fc1.weight' of unit fc1" for the first
/// parameter whose gradient has an element that is not finite; "" if all are finite.
std::string firstNonFiniteGradient(const Job &job);

} // namespace fsdpc::rt
