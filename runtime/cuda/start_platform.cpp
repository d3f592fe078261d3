// How a rank of the cuda target begins: finds its device, then the other ranks.
#include "runtime/cuda/launch_environment.h"
#include "runtime/cuda/platform.h"
#include "runtime/cuda/tcp_group.h"

#include <cstdlib>
#include <string>

namespace fsdpc::rt {
namespace {

constexpr double joinSeconds = 300;
constexpr int leastCapability = 8; ///< sm_80: bf16 on tensor cores

[[noreturn]] void fail(const std::string &message) { throw Failure(ExitCode::device, message); }

std::string versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int countDevices() {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    fail("no CUDA driver on this machine; this program needs a GPU (fsdpc --target cpu makes one that does not)");
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver)
    fail("the CUDA driver is for " + versionText(driver) + ", this program for " + versionText(CUDART_VERSION));
  if (error != cudaSuccess || count == 0)
    fail(std::string("no usable CUDA device: ") + cudaGetErrorString(error));
  return count;
}

/// LOCAL_RANK's device; where the launcher shows each rank its own only (CUDA_VISIBLE_DEVICES), that one.
void chooseDevice(int localRank) {
  const int count = countDevices();
  const int id = count == 1 ? 0 : localRank;
  if (id >= count)
    fail("local rank " + std::to_string(localRank) + " has no device: this host shows " + std::to_string(count));
  int major = 0, minor = 0;
  checkCuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id), "cudaDeviceGetAttribute");
  checkCuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id), "cudaDeviceGetAttribute");
  if (major < leastCapability)
    fail("device " + std::to_string(id) + " has compute capability " + std::to_string(major) + "." +
         std::to_string(minor) + "; " + std::to_string(leastCapability) + ".0 is needed");
  const cudaError_t error = cudaSetDevice(id);
  if (error != cudaSuccess)
    fail("device " + std::to_string(id) + ": " + cudaGetErrorString(error));
}

} // namespace

std::unique_ptr<Platform> startPlatform(int &, char **&) {
  // More hardware queues, so that collectives are not held up behind compute; CUDA's default is 8.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const LaunchEnvironment environment = launchEnvironment();
  chooseDevice(environment.localRank);
  return std::make_unique<CudaPlatform>(joinOverTcp(environment, joinSeconds));
}

} // namespace fsdpc::rt
