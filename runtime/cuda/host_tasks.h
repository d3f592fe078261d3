// Host computation in compute stream order: the device continues when it has ended.
#pragma once

#include "runtime/cuda/device.h"

#include <functional>

namespace fsdpc::rt {

/// A point of the program at which the host computes. It does the same in every step.
struct HostTask {
  std::function<void()> run;
};

void enqueue(const Context &context, HostTask &task);

/// Has the host call compute(context) after the work enqueued on compute so far. `compute` must not call CUDA.
template <class Compute>
void onHost(const Context &context, HostTask &task, const Compute &compute) {
  // Set only once: a task may be in flight, or in a graph.
  if (!task.run)
    task.run = [&context, compute] { compute(context); };
  enqueue(context, task);
}

} // namespace fsdpc::rt
