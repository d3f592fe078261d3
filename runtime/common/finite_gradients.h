// Which gradient is to blame for a loss or norm that is not finite.
#pragma once

#include "runtime/common/job.h"

namespace fsdpc::rt {

/// Collective: "'fc1.weight' of unit fc1" for the first parameter whose gradient has an element that is not finite; ""
/// if all are finite. Behind micro_step, with the gradients that it left; in programs whose optimizers have used and
/// dropped them there (ProgramInfo::stashesGradients), behind update, with what they have made of the parameters.
std::string firstNonFiniteGradient(const Job &job);

} // namespace fsdpc::rt
