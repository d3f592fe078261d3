// A training step as one CUDA graph: what the functions of a step enqueue is captured once and replayed with one call.
//
// Everything a step reads that changes from step to step lies in device memory and is stored there before it (batch,
// learning rate, step number, seed), so the captured arguments hold for every step. The batches of several micro-steps,
// which have one place, wait in pinned memory and are copied there in turn (device_memory.h). A few rules make it
// right:
//
//   - A replay begins and ends with all streams joined. A gather that the step starts for the next one ends with the
//     step, too; it overlaps what follows it in the update, not the next step's beginning. So nothing that was captured
//     is waited for outside, and nothing of outside within (device.h, `joins`).
//   - It holds what a step does whose first gather is there. A step behind an evaluation, whose gather is not, is not
//     replayed.
//   - What the host asks about during a replay (has the loss come, has this collective ended?) are events that each
//     launch records anew (recordForHost); the captured ones say nothing to the host.
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

  /// Records what `step` enqueues; none of it runs. Libraries must have been used before, for what they set up at
  /// first use cannot be captured. Returns why it was not possible; the step may be called as usual then.
  std::optional<std::string> capture(const std::function<void()> &step);
  bool exists() const { return executable != nullptr; }
  std::int64_t nodes() const { return nodeCount; }

  /// Runs the step behind all that the compute stream was given.
  void launch();

private:
  void record(const std::function<void()> &step);

  const Context &context;
  cudaGraphExec_t executable = nullptr;
  std::int64_t nodeCount = 0;
  std::vector<int> collectives; ///< in the order of their starts
};

} // namespace fsdpc::rt
