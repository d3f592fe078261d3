#include "frontend/output/interrupted_folder.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <ctime>
#include <sys/wait.h>
#include <unistd.h>

namespace fsdpc {

namespace {

constexpr int endingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// A signal handler can reach only globals and may call only async-signal-safe functions, so another program deletes the
// folder.
char interruptedFolder[PATH_MAX];

bool isDeleted() {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/rm", "rm", "-rf", "--", interruptedFolder, nullptr);
    _exit(127);
  }
  int status = 0;
  return child < 0 || (waitpid(child, &status, 0) == child && status == 0);
}

void onEndingSignal(int number) {
  // Host compilers, which other threads wait for, may still be writing there.
  constexpr timespec pause = {0, 50'000'000};
  for (int attempt = 0; attempt < 20 && !isDeleted(); ++attempt)
    nanosleep(&pause, nullptr);
  std::signal(number, SIG_DFL);
  raise(number);
}

} // namespace

void removeWhenInterrupted(const std::string &folder) {
  const bool isNamed = !folder.empty() && folder.size() < sizeof interruptedFolder;
  auto setAll = [](void (*handler)(int)) {
    for (int number : endingSignals)
      if (struct sigaction current{}; sigaction(number, nullptr, &current) == 0 && current.sa_handler != SIG_IGN)
        std::signal(number, handler); // ignored signals, as under nohup, stay ignored
  };
  setAll(SIG_DFL);
  interruptedFolder[0] = '\0';
  if (!isNamed)
    return;
  *std::copy(folder.begin(), folder.end(), interruptedFolder) = '\0';
  setAll(onEndingSignal);
}

} // namespace fsdpc
