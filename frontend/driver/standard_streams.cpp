#include "frontend/driver/standard_streams.h"

#include "llvm/Support/raw_ostream.h"
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

namespace fsdpc {

void openStandardStreams() {
  for (int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(number, F_GETFD) < 0)
      (void)open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY); // takes the lowest free number
}

void ignoreSignalsOfWriting() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int flushStandardOutput(int code) {
  llvm::raw_fd_ostream &out = llvm::outs();
  out.flush();
  const std::error_code problem = out.has_error() ? out.error() : std::error_code();
  out.clear_error();
  llvm::errs().clear_error();
  if (!problem || problem == std::errc::broken_pipe || code != 0)
    return code;
  llvm::errs() << "fsdpc: stdout: " << problem.message() << '\n';
  return 1;
}

} // namespace fsdpc
