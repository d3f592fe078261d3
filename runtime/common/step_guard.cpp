#include "runtime/common/step_guard.h"

// Those of the guard are in runtime/cpu/allocation_guard.cpp.
#if !FSDPC_ALLOCATION_GUARD

namespace fsdpc::rt {
void stepBegins(StepPart) {}
void stepEnds() {}
void leaveOutThisThread() {}
} // namespace fsdpc::rt

#endif
