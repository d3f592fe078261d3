// Groups parameters into segments, which are gathered, reduced and updated together.
#pragma once

#include "ir/module.h"
#include "passes/options.h"
#include "passes/shard/row_tables.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

struct SegmentRequest {
  const llvm::StringMap<DType> &trained;                    ///< parameters with a gradient, and the type it is sent in
  const llvm::StringSet<> &inBackward;                      ///< parameters that derivatives read
  const llvm::StringMap<DType> &rounded;                    ///< parameters that are used only in this 16-bit type
  const llvm::StringMap<std::vector<std::string>> &scalars; ///< by trained parameter, see updateScalars
  const RowTables &tables;          ///< each is a segment of its own, whose shards consist of rows
  int64_t allGatherBucketBytes = 0; ///< see PipelineOptions
  int64_t reduceBucketBytes = 0;
};

/// The segments of a train-stage module whose mesh and units are decided, in the order of the units. Parameters share a
/// segment if they have the same unit, element types (own type, used type, type of sent gradients), placement and "is
/// trained", and scalars of their updates. Where it saves a good part of a unit's second gather, "is read in backward"
/// must match too. A bucket size splits units between parameters, or joins neighbouring units of equal placement. Every
/// parameter starts at a multiple of 128 bytes; each rank's shard is a multiple of this size, so shards stay aligned.
std::vector<State> planSegments(const Module &module, const SegmentRequest &request);

} // namespace fsdpc
