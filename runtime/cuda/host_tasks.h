// What the host computes in the order of the compute stream: the device goes on when it has ended.
#pragma once

#include "runtime/cuda/device.h"

#include <functional>

namespace fsdpc::rt {

/// One place of the program that has the host compute. It does the same in every step.
struct HostTask {
  std::function<void()> run;
};

void enqueue(const Context &context, HostTask &task);

/// Has the host call compute(context) when compute has done what it was given so far. It must call nothing of CUDA.
template <class Compute>
void onHost(const Context &context, HostTask &task, const Compute &compute) {
  // Only the first time: a task may be under way, or in a graph.
  if (!task.run)
    task.run = [&context, compute] { compute(context); };
  enqueue(context, task);
}

} // namespace fsdpc::rt
