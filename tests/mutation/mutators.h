// The classes of faults (ecosystem reliability, table D3) that a planned program can have, each as an edit at a random
// place of it.
#pragma once

#include "tests/mutation/random.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace fsdpc {
class Module;
}

namespace fsdpc::mutation {

/// Edits the module and tells what it did; nothing if the module has no place for the fault.
using Mutate = std::optional<std::string> (*)(Module &, Random &);

struct FaultClass {
  llvm::StringRef name;
  Mutate mutate;
  bool mustBeCaught = false; ///< every one, not most: what reduces and what scales
  bool isOfEvents = false;   ///< of programs with events alone; what is no fault is told by findRace
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
/// The event is recorded and awaited by nobody. Nothing if there are fewer.
std::optional<std::string> dropEventAt(Module &, size_t which);
/// The device is not told of the wait.
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
/// Reads something else, reads what forward read, is left out, or is applied twice.
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
