// Threads of the runtime: signals stay with the main thread, and one that cannot start ends the run in order.
#pragma once

#include <functional>
#include <thread>

namespace fsdpc::rt {

/// Throws Failure{memory} that says what limits threads.
std::thread startThread(std::function<void()> work);

/// Throws as startThread does unless `count` threads can run beside this one. Libraries end the process without a word
/// where one of theirs cannot start, so this is asked before they are used.
void requireThreads(int count);

} // namespace fsdpc::rt
