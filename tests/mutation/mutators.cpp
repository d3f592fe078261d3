#include "tests/mutation/mutators.h"

namespace fsdpc::mutation {

llvm::ArrayRef<FaultClass> faultClasses() {
  static constexpr FaultClass classes[] = {
      {"dropped wait", dropWait},
      {"dropped reduce", dropReduce, true},
      {"doubled reduce", doubleReduce, true},
      {"lost contribution", loseContribution, true},
      {"wrong scale", scale, true},
      {"wrong rounding", roundOnceMore, true},
      {"swapped collectives", swapCollectives},
      {"wrong group", changeGroup},
      {"early start", startEarly},
      {"wrong stream", changeStream},
      {"skipped copy", skipCopy},
      {"wrong operand", changeOperand},
      {"wrong attribute", changeAttribute},
      {"stale version", readOldVersion},
      {"dropped effect", dropEffect},
      {"wrong state", changeState},
      {"wrong recomputation", recomputeWrongly},
      {"early free", freeEarly},
      {"wrong free", freeWrongly},
      {"wrong memory edge", dropEdge},
      {"overlapping offsets", overlap},
      {"overlapping workspace", overlapWorkspace},
      {"wrong shard bounds", changeBounds},
      {"wrong place", misplace},
      {"dropped event", dropEvent, true, true},
      {"dropped device wait", dropDeviceWait, true, true},
      {"moved record", moveRecord, true, true},
      {"moved await", moveAwait, true, true},
      {"swapped events", swapEvents, true, true},
  };
  return classes;
}

} // namespace fsdpc::mutation
