// fsdpc_calibration [mpi]: measures compute and the collectives of shared memory, or with `mpi` those between hosts, as
// if each rank had its own. Started by `fsdpc calibrate` under mpirun, one compute thread per rank.
#include "runtime/calibration/benchmark.h"

#include <cstdio>
#include <string_view>

namespace fsdpc::rt {
namespace {

int measure(int argc, char **argv) {
  const std::unique_ptr<Platform> platform = startPlatform(argc, argv);
  const bool betweenHosts = argc > 1 && std::string_view(argv[1]) == "mpi";
  const ArenaInfo arenas[] = {{Space::privateSpace, calibrationPrivateBytes, calibrationPrivateBytes},
                              {Space::window, calibrationWindowBytes, calibrationWindowBytes}};
  ProgramInfo program{};
  program.modelName = "calibration";
  program.compileCommand = "";
  program.worldSize = platform->worldSize();
  program.ranksPerHost = betweenHosts ? 1 : 0;
  program.arenas = arenas;
  PlatformOptions options;
  options.threads = 1;
  options.streams = StreamMode::inlined;
  Benchmark benchmark(*platform, platform->openArenas(program, options));
  if (!betweenHosts)
    calibrateCompute(benchmark);
  calibrateCollectives(benchmark, betweenHosts);
  platform->barrier();
  return 0;
}

} // namespace
} // namespace fsdpc::rt

int main(int argc, char **argv) {
  try {
    return fsdpc::rt::measure(argc, argv);
  } catch (const std::exception &failure) {
    std::fprintf(stderr, "fsdpc_calibration: %s\n", failure.what());
    return 1;
  }
}
