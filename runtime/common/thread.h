// Threads of the runtime. The main thread handles all signals. A thread that cannot start ends the run with a message.
#pragma once

#include <functional>
#include <thread>

namespace fsdpc::rt {

/// Throws Failure{memory}, whose message names the limits on threads.
std::thread startThread(std::function<void()> work);

/// Throws like startThread unless `count` threads can run in addition to this one. Libraries end the process without a
/// message if one of their threads cannot start, so call this before using them.
void requireThreads(int count);

} // namespace fsdpc::rt
