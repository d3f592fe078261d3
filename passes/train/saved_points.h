// What one part of forward can keep for backward, and what it costs to keep less.
#pragma once

#include "ir/target.h"
#include "passes/train/forward_runs.h"

namespace fsdpc {

/// One choice.
struct SavedPoint {
  std::vector<bool> recomputed; ///< per node of the run
  int64_t bytes = 0;            ///< of what stays until backward on its account: each memory counted once
  double microseconds = 0;      ///< of what is computed again, and of copies that computing does not hide
  bool isOffloaded = false;     ///< what stays does so in the host's memory: no bytes of the device
};

/// Is it expensive to compute again for what it takes to keep? Products, convolutions, attention (Korthikanti et al.,
/// arXiv 2205.05198, section 5).
bool isExpensive(const Node &node);

/// The choices that no other beats in both bytes and time, the fastest first: it takes no time. How they are found:
/// saved_points.cpp. Time is the target's.
/// A run that may offload has every choice a second time, with what stays on the host: copied there while the run's
/// forward computes, and back while its backward does, which takes twice as long.
std::vector<SavedPoint> savedPoints(const ForwardRun &run, const Target &target);

/// Equal for runs that have the same points: ops, types, costs, edges and readers.
std::string signatureOf(const ForwardRun &run, const Target &target);

} // namespace fsdpc
