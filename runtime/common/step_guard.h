// The borders of a training or evaluation step, for the test build's proof that nothing is allocated inside one.
//
// The main loop calls stepBegins() before the first function of a step and stepEnds() after the last; loading data,
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

} // namespace fsdpc::rt
