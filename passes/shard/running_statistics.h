// Buffers of the model in a sharded program. They are replicated on every rank, in flat contiguous regions, so that all
// running statistics with the same update are summed over the ranks together and updated in one loop.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

class RunningStatistics {
public:
  /// Requires: the module is in the train stage and has its mesh.
  explicit RunningStatistics(Module &module) : module(module) {}

  /// Adds the regions: one state per momentum for the buffers it updates, and one for the buffers that nothing updates.
  /// Calls placed(run, slot) for each buffer.
  void add(llvm::function_ref<void(const State &run, const SegmentSlot &slot)> placed);

  /// Updates each region as a single buffer at the end of micro_step, instead of buffer by buffer:
  ///     %s = batch_sum %m ranks(2); %n = update_statistics %old, %s; write @bn.running_mean %n    (of each buffer)
  ///     ->  %p = pack %m, ...; %s = all_reduce %p; %r = read @buffers; write @buffers (%r * (1 - m) + %s * m)
  void updateRuns(Function &step);

private:
  struct Run {
    State *state = nullptr;
    double momentum = 0;
    bool isSummed = false;      ///< over the ranks
    std::vector<Node *> writes; ///< by slot
  };
  void addState(Run &run, llvm::ArrayRef<const Parameter *> buffers, DType dtype);
  Value *packed(Builder &builder, const Run &run);

  Module &module;
  std::vector<Run> runs;
};

} // namespace fsdpc
