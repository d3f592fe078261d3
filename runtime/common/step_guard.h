// The borders of a training or evaluation step, for the test build's proof that nothing is allocated inside one.
//
// The main loop has a StepScope around the functions of a step, which also ends where one of them throws; loading data,
// logging and saving stand outside. In builds without FSDPC_TEST_BUILD both are nothing.
#pragma once

namespace fsdpc::rt {

#if defined(FSDPC_TEST_BUILD)
void stepBegins();
void stepEnds();
#else
inline void stepBegins() {}
inline void stepEnds() {}
#endif

class StepScope {
public:
  StepScope() { stepBegins(); }
  ~StepScope() { stepEnds(); }
  StepScope(const StepScope &) = delete;
  StepScope &operator=(const StepScope &) = delete;
};

} // namespace fsdpc::rt
