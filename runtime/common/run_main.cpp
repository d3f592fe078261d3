#include "runtime/common/run_main.h"

#include "runtime/checkpoint/requests.h"
#include "runtime/common/agreement.h"
#include "runtime/common/closing_line.h"
#include "runtime/common/crash_report.h"
#include "runtime/common/file.h"
#include "runtime/common/folder_lease.h"
#include "runtime/common/run_program.h"
#include "runtime/common/standard_streams.h"
#include "runtime/common/watchdog.h"

#include <csignal>
#include <cstdio>
#include <new>
#include <optional>

namespace fsdpc::rt {
namespace {

/// Runs `work` and returns any exception as a Failure.
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

WatchdogLimits limitsOf(const Options &options) {
  WatchdogLimits limits;
  limits.initSeconds = static_cast<double>(options.initTimeoutSeconds);
  limits.trainSeconds = static_cast<double>(options.trainTimeoutSeconds);
  return limits;
}

int end(Platform &platform, Watchdog &watchdog, const Failure &failure, Pulse &pulse) {
  if (!failure.everyRank) {
    std::fflush(stdout);
    watchdog.end(failure);
  }
  if (platform.rank() == failure.reportingRank) {
    std::fflush(stdout);
    printFailure(failure, failure.reportingRank, pulse.line().step);
  }
  // A launcher kills the other ranks as soon as one ends, so no rank leaves before the message is printed.
  platform.barrier();
  return static_cast<int>(failure.code);
}

int runOnRanks(const ProgramInfo &program, const Options &options, std::optional<Failure> usageFailure,
               Platform &platform, Watchdog &watchdog, Pulse &pulse) {
  const auto failure = caught([&] {
    requireSameProgram(platform, program, "/proc/self/exe");
    agreed(platform, [&] {
      if (usageFailure)
        throw *usageFailure;
    });
    requireSameOptions(platform, options);
    runProgram(program, options, platform, executableDirectory(), pulse);
  });
  const int status = failure ? end(platform, watchdog, *failure, pulse) : 0;
  pulse.enter(Phase::saving); // the rest has the time limit of this phase
  return status;
}

/// A copy with the arenas of a run that predicts.
ProgramInfo withPredictArenas(const ProgramInfo &program, std::vector<ArenaInfo> &arenas) {
  arenas.assign(program.arenas.begin(), program.arenas.end());
  for (ArenaInfo &arena : arenas)
    if (arena.predictBytes > 0)
      arena.bytes = arena.usedBytes = arena.predictBytes;
  ProgramInfo sized = program;
  sized.arenas = arenas;
  return sized;
}

} // namespace

int runMain(int argc, char **argv, std::optional<int> launched) {
  openStandardStreams();
  Options options;
  std::optional<Failure> failure = caught(
      [&] { options = parseOptions(programInfo(), {argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)}); });
  std::vector<ArenaInfo> predictArenas;
  const ProgramInfo program = options.predict.empty() ? programInfo() : withPredictArenas(programInfo(), predictArenas);
  if (!failure && (options.help || options.version)) {
    if (launched.value_or(0) == 0)
      std::fputs((options.help ? helpText(program) : versionText(program)).c_str(), stdout);
    return 0;
  }
  if (failure && !launched) {
    printFailure(*failure, 0, 0);
    return static_cast<int>(failure->code);
  }
  if (!options.checkpointFolder.empty())
    catchStopSignals();
  // A file that may not grow is an error of its write, like a full disk, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  Pulse pulse(launched.value_or(0));
  const CrashReport crashReport(pulse);
  std::optional<FolderLease> lease;
  std::optional<Watchdog> watchdog;
  std::unique_ptr<Platform> platform;
  const auto startFailure = caught([&] {
    lease.emplace();
    watchdog.emplace(pulse, limitsOf(options), Launcher::watched());
    platform = startPlatform(argc, argv);
  });
  if (startFailure) {
    if (!startFailure->everyRank || launched.value_or(0) == 0)
      printFailure(*startFailure, launched.value_or(0), 0);
    return static_cast<int>(startFailure->code);
  }
  watchdog->attach(*platform);
  const int status = runOnRanks(program, options, failure, *platform, *watchdog, pulse);
  watchdog->detach();
  platform.reset();
  return status;
}

} // namespace fsdpc::rt
