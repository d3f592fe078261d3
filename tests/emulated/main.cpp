// The entry point of a program whose ranks are threads of one process: on the emulated device, or on one real device
// with the loopback transport (tests/gpu/loopback). If a launcher starts it, the lowest rank runs all ranks and the
// other processes exit, so `mpirun -n N train` works as for any program.
#include "runtime/common/launcher.h"
#include "runtime/common/run_main.h"
#include "runtime/cuda/choose_device.h"
#include "runtime/cuda/platform.h"
#include "tests/emulated/thread_group.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace fsdpc::rt {
namespace {

ThreadMeeting *meeting = nullptr;
thread_local int threadRank = 0;

/// The number of ranks that the launcher has started; without a launcher, the program's own number.
int launchedSize() {
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"})
    if (const char *text = std::getenv(name))
      return std::atoi(text);
  return programInfo().worldSize;
}

} // namespace

std::unique_ptr<Platform> startPlatform(int &, char **&) {
  chooseDevice(0);
  return std::make_unique<CudaPlatform>(std::make_unique<ThreadGroup>(*meeting, threadRank));
}

} // namespace fsdpc::rt

int main(int argc, char **argv) {
  using namespace fsdpc::rt;
  if (launcherRank().value_or(0) != 0)
    return 0;
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0); // as start_platform.cpp
  ThreadMeeting ranks(launchedSize());
  meeting = &ranks;
  std::vector<int> status(static_cast<std::size_t>(ranks.size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.size; ++rank)
    threads.emplace_back([&, rank] {
      threadRank = rank;
      status[static_cast<std::size_t>(rank)] = runMain(argc, argv, rank);
    });
  for (std::thread &thread : threads)
    thread.join();
  return *std::max_element(status.begin(), status.end());
}
