// MPI in the test program: started by the first test that needs it (or immediately under mpirun), finalized by main.
#pragma once

#include "runtime/common/platform.h"

namespace fsdpc::rt::test {

/// The only platform of this process.
Platform &platform();

/// Finalizes MPI if it was started.
void endPlatform();

} // namespace fsdpc::rt::test
