#include "runtime/common/step_guard.h"

// Those of the test build are in runtime/cpu/allocation_guard.cpp.
#if !defined(FSDPC_TEST_BUILD)

namespace fsdpc::rt {
void stepBegins(StepPart) {}
void stepEnds() {}
void leaveOutThisThread() {}
} // namespace fsdpc::rt

#endif
