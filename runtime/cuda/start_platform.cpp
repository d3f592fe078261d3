// Starts a rank of the cuda target: chooses its device, then joins the other ranks.
#include "runtime/cuda/choose_device.h"
#include "runtime/cuda/launch_environment.h"
#include "runtime/cuda/platform.h"
#include "runtime/cuda/tcp_group.h"

#include <cstdlib>

namespace fsdpc::rt {
namespace {
constexpr double joinSeconds = 300;
} // namespace

std::unique_ptr<Platform> startPlatform(int &, char **&) {
  // More hardware queues, so that collectives do not queue after compute; CUDA's default is 8.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const LaunchEnvironment environment = launchEnvironment();
  chooseDevice(environment.localRank);
  return std::make_unique<CudaPlatform>(joinOverTcp(environment, joinSeconds));
}

} // namespace fsdpc::rt
