// The borders of a training or evaluation step, for the test build's proof that nothing is allocated inside one.
//
// The main loop has a StepScope around the functions of a step, one around feeding it, and one around its line of the
// log; each also ends where something throws. Saving stands outside, and so does what is printed for people. In builds
// without FSDPC_TEST_BUILD all are nothing.
#pragma once

#include <cstdint>

namespace fsdpc::rt {

enum class StepPart : std::uint8_t {
  functions, ///< of the program
  feeding,   ///< a micro-batch comes to where the functions read it
  logging,
};

#if defined(FSDPC_TEST_BUILD)
void stepBegins(StepPart part = StepPart::functions);
void stepEnds();
#else
inline void stepBegins(StepPart = StepPart::functions) {}
inline void stepEnds() {}
#endif

class StepScope {
public:
  explicit StepScope(StepPart part = StepPart::functions) { stepBegins(part); }
  ~StepScope() { stepEnds(); }
  StepScope(const StepScope &) = delete;
  StepScope &operator=(const StepScope &) = delete;
};

} // namespace fsdpc::rt
