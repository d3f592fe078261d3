#include "runtime/common/thread.h"

#include "runtime/common/failure.h"

#include <csignal>
#include <latch>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace fsdpc::rt {

std::thread startThread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::optional<std::string> problem;
  try {
    thread = std::thread(std::move(work));
  } catch (const std::system_error &error) {
    problem = error.code().message();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (problem)
    throw Failure(ExitCode::memory, "a thread cannot start: " + *problem +
                                        "; raise the limits of processes (ulimit -u, the pids limit of a container) " +
                                        "or of memory (ulimit -v, -s), or give fewer --threads");
  return thread;
}

void requireThreads(int count) {
  std::latch end(1);
  std::vector<std::thread> threads;
  const auto finish = [&] {
    end.count_down();
    for (std::thread &thread : threads)
      thread.join();
  };
  try {
    for (int i = 0; i < count; ++i)
      threads.push_back(startThread([&end] { end.wait(); }));
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

} // namespace fsdpc::rt
