// A training step as one CUDA graph: the work that a step's functions enqueue is captured once and replayed with one
// call.
//
// All inputs that change from step to step (batch, learning rate, step number, seed) are in device memory and are
// stored there before the step, so the captured arguments hold for every step. The batches of several micro-steps share
// one location. They wait in pinned memory and are copied there in turn (device_memory.h). For correctness:
//
//   - A replay begins and ends with all streams joined. A gather that the step starts for the next one ends with the
//     step, too. It overlaps what follows it in the update, not the start of the next step. So no captured work is
//     waited for outside the graph, and no outside work is waited for inside it (device.h, `joins`).
//   - The graph captures a step whose first gather has already been started. A step after an evaluation, which lacks
//     that gather, is not replayed.
//   - What the host queries during a replay (is the loss available, has this collective ended?) are events that each
//     launch records again (recordForHost). The host cannot query captured events.
#pragma once

#include "runtime/cuda/device.h"

#include <functional>
#include <optional>
#include <string>

namespace fsdpc::rt {

class StepGraph {
public:
  explicit StepGraph(const Context &context) : context(context) {}
  ~StepGraph();
  StepGraph(const StepGraph &) = delete;
  StepGraph &operator=(const StepGraph &) = delete;

  /// Records what `step` enqueues, without running it. Libraries must have been used before, since their first-use
  /// initialization cannot be captured. If capture fails, returns the reason, and the step may be called directly.
  std::optional<std::string> capture(const std::function<void()> &step);
  bool exists() const { return executable != nullptr; }
  std::int64_t nodes() const { return nodeCount; }

  /// Runs the step after all work enqueued on the compute stream.
  void launch();

private:
  void record(const std::function<void()> &step);

  const Context &context;
  cudaGraphExec_t executable = nullptr;
  std::int64_t nodeCount = 0;
  std::vector<int> collectives; ///< in the order of their starts
};

} // namespace fsdpc::rt
