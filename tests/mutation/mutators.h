// The classes of faults (ecosystem reliability, table D3) that a planned program can have, each as an edit at a random
// position.
#pragma once

#include "tests/mutation/random.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace fsdpc {
class Module;
}

namespace fsdpc::mutation {

/// Edits the module and returns a description of the edit; nullopt if the fault does not apply to the module.
using Mutate = std::optional<std::string> (*)(Module &, Random &);

struct FaultClass {
  llvm::StringRef name;
  Mutate mutate;
  bool mustBeCaught = false; ///< all faults, not most: reductions and scales
  bool isOfEvents = false;   ///< only for programs with events; findRace decides what is not a fault
};

llvm::ArrayRef<FaultClass> faultClasses();

// mutate_communication.cpp
std::optional<std::string> dropWait(Module &, Random &);
std::optional<std::string> dropReduce(Module &, Random &);
std::optional<std::string> doubleReduce(Module &, Random &);
std::optional<std::string> swapCollectives(Module &, Random &);
std::optional<std::string> changeGroup(Module &, Random &);
std::optional<std::string> startEarly(Module &, Random &);
std::optional<std::string> changeStream(Module &, Random &);
std::optional<std::string> skipCopy(Module &, Random &);

// mutate_events.cpp
/// No node records or awaits the event any more. Nullopt if there are fewer events.
std::optional<std::string> dropEventAt(Module &, size_t which);
/// The wait is not issued to the device.
std::optional<std::string> dropDeviceWaitAt(Module &, size_t which);
std::optional<std::string> dropEvent(Module &, Random &);
std::optional<std::string> dropDeviceWait(Module &, Random &);
std::optional<std::string> moveRecord(Module &, Random &);
std::optional<std::string> moveAwait(Module &, Random &);
std::optional<std::string> swapEvents(Module &, Random &);

// mutate_values.cpp
std::optional<std::string> loseContribution(Module &, Random &);
std::optional<std::string> scale(Module &, Random &);
std::optional<std::string> roundOnceMore(Module &, Random &);
std::optional<std::string> changeOperand(Module &, Random &);
std::optional<std::string> changeAttribute(Module &, Random &);
std::optional<std::string> readOldVersion(Module &, Random &);
std::optional<std::string> dropEffect(Module &, Random &);
std::optional<std::string> changeState(Module &, Random &);

// mutate_recompute.cpp
/// The recomputation reads another value, reads forward's operand, is omitted, or is applied twice.
std::optional<std::string> recomputeWrongly(Module &, Random &);

// mutate_memory.cpp
std::optional<std::string> freeEarly(Module &, Random &);
std::optional<std::string> freeWrongly(Module &, Random &);
std::optional<std::string> dropEdge(Module &, Random &);
std::optional<std::string> overlap(Module &, Random &);
std::optional<std::string> overlapWorkspace(Module &, Random &);
std::optional<std::string> changeBounds(Module &, Random &);
std::optional<std::string> misplace(Module &, Random &);

} // namespace fsdpc::mutation
