// Buffers of the model in a sharded program: whole on every rank, in flat runs, so that all running statistics that
// move alike are summed over the ranks together and are one loop.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

class RunningStatistics {
public:
  /// The module is in the train stage and has its mesh.
  explicit RunningStatistics(Module &module) : module(module) {}

  /// Adds the runs: a state for the buffers that one momentum moves, one for those that nothing does. Calls
  /// placed(run, slot) for each buffer.
  void add(llvm::function_ref<void(const State &run, const SegmentSlot &slot)> placed);

  /// At the end of micro_step each run moves as a whole, instead of buffer by buffer:
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
