// The entry point of every emitted program: joins the ranks, reads the command line, runs, and turns a Failure into one
// message, the documented exit code, and the closing line `fsdpc: exit=<code> rank=<r> [step=<n>] [key=value ...]`.

#include "runtime/common/file.h"
#include "runtime/common/options.h"
#include "runtime/common/run_program.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>

namespace fsdpc::rt {
namespace {

/// This process's rank as a launcher tells it, before the ranks are joined; none if the program was started alone.
std::optional<int> launcherRank() {
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"})
    if (const char *text = std::getenv(name))
      return std::atoi(text);
  return std::nullopt;
}

void print(const Failure &failure, int rank, const RunPosition &position) {
  std::fflush(stdout);
  std::fprintf(stderr, "fsdpc: error: %s\nfsdpc: exit=%d rank=%d", failure.what(), static_cast<int>(failure.code),
               rank);
  if (position.step > 0)
    std::fprintf(stderr, " step=%lld", static_cast<long long>(position.step));
  if (!failure.details.empty())
    std::fprintf(stderr, " %s", failure.details.c_str());
  std::fputc('\n', stderr);
  std::fflush(stderr);
}

/// Runs `work`; what it throws comes back as a Failure.
template <class Work>
std::optional<Failure> caught(Work work) {
  try {
    work();
  } catch (const Failure &failure) {
    return failure;
  } catch (const std::bad_alloc &) {
    return Failure(ExitCode::memory, "out of memory");
  } catch (const std::exception &error) {
    return Failure(ExitCode::internal, error.what());
  }
  return std::nullopt;
}

int end(Platform &platform, const Failure &failure, const RunPosition &position) {
  const int code = static_cast<int>(failure.code);
  if (!failure.everyRank) {
    print(failure, platform.rank(), position);
    platform.abort(code);
  }
  if (platform.rank() == failure.speakingRank)
    print(failure, failure.speakingRank, position);
  // A launcher kills the other ranks as soon as one ends: nobody leaves before the message is out.
  platform.barrier();
  return code;
}

int runMain(int argc, char **argv) {
  const ProgramInfo &program = programInfo();
  Options options;
  std::optional<Failure> failure =
      caught([&] { options = parseOptions(program, {argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)}); });
  const std::optional<int> launched = launcherRank();
  if (!failure && options.help) {
    if (launched.value_or(0) == 0)
      std::fputs(helpText(program).c_str(), stdout);
    return 0;
  }
  RunPosition position;
  if (failure && !launched) {
    print(*failure, 0, position);
    return static_cast<int>(failure->code);
  }
  std::unique_ptr<Platform> platform;
  if (const auto startFailure = caught([&] { platform = startPlatform(argc, argv); })) {
    print(*startFailure, launched.value_or(0), position);
    return static_cast<int>(startFailure->code);
  }
  if (!failure)
    failure = caught([&] { runProgram(program, options, *platform, executableDirectory(), position); });
  return failure ? end(*platform, *failure, position) : 0;
}

} // namespace
} // namespace fsdpc::rt

int main(int argc, char **argv) { return fsdpc::rt::runMain(argc, argv); }
