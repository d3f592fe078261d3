// The boundaries of a training or evaluation step. The test build uses them to prove that a step allocates nothing.
//
// The main loop has one StepScope around the functions of a step, one around feeding it, and one around its line of the
// log. Each also ends on an exception. Saving and printing for the user are outside. In builds without FSDPC_TEST_BUILD
// all of them do nothing.
#pragma once

#include <cstdint>

/// Only sources that every build compiles for itself may ask for it (CMakeLists.txt: own_runtime_sources, and those of
/// cpu).
#if defined(FSDPC_TEST_BUILD) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FSDPC_ALLOCATION_GUARD 1
#else
#define FSDPC_ALLOCATION_GUARD 0
#endif

namespace fsdpc::rt {

enum class StepPart : std::uint8_t {
  functions, ///< of the program
  feeding,   ///< copying a micro-batch into the inputs of the functions
  logging,
};

void stepBegins(StepPart part = StepPart::functions);
void stepEnds();
/// The calling thread does other work beside the steps, such as writing a checkpoint, and may allocate.
void leaveOutThisThread();

class StepScope {
public:
  explicit StepScope(StepPart part = StepPart::functions) { stepBegins(part); }
  ~StepScope() { stepEnds(); }
  StepScope(const StepScope &) = delete;
  StepScope &operator=(const StepScope &) = delete;
};

} // namespace fsdpc::rt
