#include "runtime/cuda/choose_device.h"

#include "runtime/cuda/device.h"

#include <string>

namespace fsdpc::rt {
namespace {

constexpr int minCapability = 8; ///< sm_80: bf16 on tensor cores

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

} // namespace

void chooseDevice(int localRank) {
  const int count = countDevices();
  const int id = count == 1 ? 0 : localRank;
  if (id >= count)
    fail("local rank " + std::to_string(localRank) + " has no device: this host shows " + std::to_string(count));
  int major = 0, minor = 0;
  checkCuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id), "cudaDeviceGetAttribute");
  checkCuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id), "cudaDeviceGetAttribute");
  if (major < minCapability)
    fail("device " + std::to_string(id) + " has compute capability " + std::to_string(major) + "." +
         std::to_string(minor) + "; " + std::to_string(minCapability) + ".0 is needed");
  const cudaError_t error = cudaSetDevice(id);
  if (error != cudaSuccess)
    fail("device " + std::to_string(id) + ": " + cudaGetErrorString(error));
}

} // namespace fsdpc::rt
