#include "runtime/common/closing_line.h"

#include <string>
#include <unistd.h>

namespace fsdpc::rt {

void printFailure(const Failure &failure, int rank, std::int64_t step) {
  // A run that was stopped has not failed.
  std::string text = std::string(failure.code == ExitCode::stopped ? "fsdpc: " : "fsdpc: error: ") + failure.what() +
                     "\nfsdpc: exit=" + std::to_string(static_cast<int>(failure.code)) +
                     " rank=" + std::to_string(rank);
  if (step > 0)
    text += " step=" + std::to_string(step);
  if (!failure.details.empty())
    text += " " + failure.details;
  text += '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t put = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (put <= 0)
      return;
    done += static_cast<std::size_t>(put);
  }
}

} // namespace fsdpc::rt
