// The built-in tables.
#include "passes/cost/hardware.h"

#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral classNames[computeClassCount] = {
    "matmul", "convolution", "attention", "normalization", "softmax", "loop", "reduce", "move", "optimizer"};

/// A node of GPUs according to its vendor's data sheet. Flops dense, without sparsity.
struct GpuNode {
  llvm::StringRef name;
  double teraflops;     ///< f32, CUDA cores: TF32 is off by default
  double halfTeraflops; ///< bf16, tensor cores
  double memoryTerabytesPerSecond;
  double nvlinkGigabytesPerSecond;     ///< one direction, as NCCL's ring uses it: links x bandwidth of a link
  double networkGigabytesPerSecond;    ///< one GPU's adapter
  double hostGigabytesPerSecond;       ///< PCIe x16, one direction
  double hostMemoryGigabytesPerSecond; ///< one GPU's share
  /// The fraction of the data sheet's values that whole training steps reach: matmuls and convolutions, attention, and
  /// memory. Fitted to published steps (tests/bench/published.py).
  double matmulReached, attentionReached, memoryReached;
};

// Flops and memory: data sheets of A100 80GB SXM, H100 SXM, H200 SXM, HGX B200. NVLink: nccl src/graph/topo.h (v2.28),
// SM80 12 x 20.0, SM90 18 x 20.6, SM100 18 x 40.1 GB/s. Network: one 200 Gb/s (DGX A100) or 400 Gb/s adapter per GPU.
// Host: PCIe 4.0 or 5.0 x16, minus a fifth for packet overhead; two sockets of eight channels of DDR4-3200, DDR5-4800
// or DDR5-5600 among eight GPUs.
constexpr GpuNode gpuNodes[] = {
    {"a100_8", 19.5, 312, 2.039, 240.0, 25, 25, 51, 0.7, 0.7, 0.7},
    {"h100_8", 67, 989, 3.35, 370.8, 50, 50, 77, 0.5, 0.35, 0.6},
    {"h200_8", 67, 989, 4.8, 370.8, 50, 50, 77, 0.5, 0.35, 0.6},
    {"b200_8", 80, 2250, 8.0, 721.8, 50, 50, 90, 0.5, 0.35, 0.6},
};

/// The fraction of the data sheet's value that other kernels reach, and a launch (autoparallel,
/// docs/how_autoparallel_chooses_a_strategy.md).
constexpr double reached = 0.7;
constexpr double launchMicroseconds = 7;

/// NCCL's own model, src/graph/tuning.cc of v2.28: base latency and latency of a ring hop for the protocols LL, LL128
/// and Simple. LL sends half the bytes as flags, LL128 8 of 128.
Link ncclLink(double gigabytesPerSecond, llvm::ArrayRef<double> hopMicroseconds) {
  constexpr double baseMicroseconds[] = {6.6, 14.0, 8.4};
  constexpr double efficiency[] = {0.5, 0.92, 1.0};
  Link link;
  for (size_t i = 0; i < 3; ++i)
    link.rates.push_back({"", baseMicroseconds[i], hopMicroseconds[i], efficiency[i] * gigabytesPerSecond * 1e3});
  return link;
}

Hardware makeGpuNode(const GpuNode &node) {
  Hardware hardware;
  hardware.name = node.name.str();
  hardware.ranksPerNode = 8;
  hardware.hostRunsAhead = true;
  hardware.floorMicroseconds = launchMicroseconds;
  hardware.peakFlopsPerMicrosecond = node.teraflops * 1e6;
  hardware.halfPeakFlopsPerMicrosecond = node.halfTeraflops * 1e6;
  for (size_t i = 0; i < computeClassCount; ++i) {
    const bool isAttention = i == static_cast<size_t>(ComputeClass::attention),
               onTensorCores = i <= static_cast<size_t>(ComputeClass::attention);
    const double ofTensorCores = isAttention ? node.attentionReached : node.matmulReached;
    hardware.compute[i].flopsPerMicrosecond = reached * node.teraflops * 1e6;
    hardware.compute[i].halfFlopsPerMicrosecond =
        (onTensorCores ? ofTensorCores * node.halfTeraflops : reached * node.teraflops) * 1e6;
    hardware.compute[i].bytesPerMicrosecond = node.memoryReached * node.memoryTerabytesPerSecond * 1e6;
  }
  hardware.nodeLocal = ncclLink(node.nvlinkGigabytesPerSecond, {0.6, 1.9, 3.4});
  hardware.network = ncclLink(node.networkGigabytesPerSecond, {2.7, 4.0, 14.0});
  hardware.host = {launchMicroseconds, node.hostGigabytesPerSecond * 1e3,
                   reached * node.hostMemoryGigabytesPerSecond * 1e3};
  return hardware;
}

/// One core with AVX-512 and its share of a server's memory.
Hardware makeCpu() {
  Hardware hardware;
  hardware.name = "cpu";
  for (ComputeRate &rate : hardware.compute)
    rate = {1.0e4, 1.0e4, 1.0e4, 0.2};
  hardware.rateOf(ComputeClass::matmul) = {1.0e5, 1.0e5, 1.0e4, 1};
  hardware.rateOf(ComputeClass::convolution) = {5.0e4, 5.0e4, 1.0e4, 2};
  hardware.rateOf(ComputeClass::attention) = {4.0e4, 4.0e4, 1.0e4, 1};
  hardware.nodeLocal = {Algorithm::peerRead, {{"", 5, 0, 5.0e3}}};
  hardware.network = {Algorithm::ring, {{"", 30, 0, 1.0e3}}};
  hardware.host = {1, 5.0e3, 0};
  return hardware;
}

} // namespace

llvm::StringRef nameOf(ComputeClass computeClass) { return classNames[static_cast<size_t>(computeClass)]; }

llvm::ArrayRef<llvm::StringRef> builtInHardwareNames() {
  static constexpr llvm::StringRef names[] = {"cpu", gpuNodes[0].name, gpuNodes[1].name, gpuNodes[2].name,
                                              gpuNodes[3].name};
  return names;
}

std::optional<Hardware> builtInHardware(llvm::StringRef name) {
  if (name == "cpu")
    return makeCpu();
  for (const GpuNode &node : gpuNodes)
    if (node.name == name)
      return makeGpuNode(node);
  return std::nullopt;
}

} // namespace fsdpc
