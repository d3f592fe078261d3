// The choices of one region of forward: the values to keep for backward, and the cost of keeping fewer.
#pragma once

#include "ir/target.h"
#include "passes/train/forward_regions.h"

namespace fsdpc {

/// One choice.
struct SavedPoint {
  std::vector<bool> recomputed; ///< per node of the region
  int64_t bytes = 0;            ///< that this region keeps until backward; each buffer counts once
  double microseconds = 0;      ///< of recomputation, and of copies that do not overlap with compute
  bool isOffloaded = false;     ///< the kept values are in host memory and take no device bytes
};

/// True for nodes whose recomputation is expensive relative to the memory of their results: matmuls, convolutions,
/// attention (Korthikanti et al., arXiv 2205.05198, section 5).
bool isExpensive(const Node &node);

/// The choices that no other dominates in both bytes and time, fastest first; the first takes no time. See
/// saved_points.cpp for the algorithm. Times are the target's. A region that may offload has every choice a second
/// time, with the kept values on the host: copied there while the region's forward computes, and back while its
/// backward computes, which takes twice as long.
std::vector<SavedPoint> savedPoints(const ForwardRegion &run, const Target &target);

/// Equal for regions with the same points: ops, types, costs, edges and readers.
std::string signatureOf(const ForwardRegion &run, const Target &target);

} // namespace fsdpc
