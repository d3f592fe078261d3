// How parameters become segments: what is gathered, reduced and updated together.
#pragma once

#include "ir/module.h"
#include "passes/options.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

struct SegmentRequest {
  const llvm::StringMap<DType> &trained; ///< parameters that have a gradient, and what it is sent in
  const llvm::StringSet<> &inBackward;   ///< parameters that derivatives read
  const llvm::StringMap<DType> &rounded; ///< parameters that are used in this 16-bit type only
  int64_t allGatherBucketBytes = 0;      ///< see PipelineOptions
  int64_t reduceBucketBytes = 0;
};

/// The segments of a train-stage module whose mesh and units are decided, in the order of the units. Parameters stand
/// together if they have the unit, the element types (their own, what they are used in and what gradients are sent in),
/// the placement and "is trained" in common, and, where it spares a good part of a unit's second gather, "is read in
/// backward". A bucket size cuts units at parameters, or joins neighbouring ones of equal placement. Every parameter
/// starts on 128 bytes; whole atoms per rank keep shards aligned.
std::vector<State> planSegments(const Module &module, const SegmentRequest &request);

} // namespace fsdpc
