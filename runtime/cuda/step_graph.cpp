#include "runtime/cuda/step_graph.h"

#include "runtime/cuda/collectives.h"
#include "runtime/cuda/device_progress.h"

namespace fsdpc::rt {

StepGraph::~StepGraph() {
  if (executable)
    cudaGraphExecDestroy(executable);
}

/// Runs between beginning and end of the capture: forks the channels' streams into it and joins them again.
void StepGraph::record(const std::function<void()> &step) {
  forkChannels(context);
  step();
  returnChannels(context);
}

std::optional<std::string> StepGraph::capture(const std::function<void()> &step) {
  Device &device = deviceOf(context);
  joinStreams(context);
  const auto unseen = device.progress->withoutLooking();
  device.progress->beginCapture();
  // Other threads (NCCL's own, ranks that are threads) may make calls that a capture forbids.
  if (const cudaError_t error = cudaStreamBeginCapture(device.compute, cudaStreamCaptureModeThreadLocal))
    return cudaGetErrorString(error);
  device.captured.emplace();
  std::optional<std::string> why;
  try {
    record(step);
  } catch (const Failure &failure) {
    why = failure.what();
  }
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(device.compute, &graph);
  collectives = std::move(*device.captured);
  device.captured.reset();
  noteJoined(device);
  std::size_t count = 0;
  if (error == cudaSuccess)
    error = cudaGraphGetNodes(graph, nullptr, &count);
  // Collectives keep the priority of their streams.
  if (error == cudaSuccess)
    error = cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority);
  nodeCount = static_cast<std::int64_t>(count);
  if (graph)
    cudaGraphDestroy(graph);
  if (error != cudaSuccess && !why)
    why = cudaGetErrorString(error);
  cudaGetLastError(); // clears the error, which has been reported
  return why;
}

void StepGraph::launch() {
  Device &device = deviceOf(context);
  checkCuda(cudaGraphLaunch(executable, device.compute), "cudaGraphLaunch");
  for (std::size_t i = 0; i < collectives.size(); ++i)
    device.progress->given(device.progress->ofCaptured(i), ++device.sequence, collectives[i]);
  noteJoined(device);
}

} // namespace fsdpc::rt
