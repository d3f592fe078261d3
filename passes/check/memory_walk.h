// Executes functions, node by node, on the planned memory.
#pragma once

#include "ir/carried.h"
#include "passes/check/arena_memory.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace fsdpc::check {

class MemoryWalk {
public:
  explicit MemoryWalk(const Module &module) : module(module), carriedOver(carriedOverSteps(module)), memory(module) {}
  /// Runs the functions of `sequence` one after the other. Before the first, only states, inputs and buffers carried
  /// from the previous step hold values.
  llvm::Error run(llvm::ArrayRef<const Function *> sequence);

private:
  /// The meaning of a value's name: a version of a buffer. buffer -1: a value without bytes.
  struct Holding {
    int32_t buffer = -1;
    int32_t version = 0;
    Moment since = 0;              ///< when the compute stream computed the value; aliases (read, view) compute nothing
    CollectiveIndex future = -1;   ///< of a future
    EndedCollectives arrived = {}; ///< the collectives that computed it
  };
  struct Result {
    Holding holding;
    const Value *value = nullptr;
  };

  llvm::Error placeStates();
  llvm::Error placeInputs(const Function &function);
  llvm::Error takeFromStepBefore(const CarriedOver &over);
  bool isLeftToNextStep(CollectiveIndex collective) const;
  llvm::Error checkLeftToNextStep() const;
  llvm::Error runFunction(const Function &function);
  llvm::Error takeArguments(const Function &function);
  llvm::Error takeCarried(const Function &function, const Argument &argument);
  llvm::Error finishFunction(const Function &function, int32_t firstBuffer);
  llvm::Error finishSequence() const;

  llvm::Error runNode(const Node &node);
  llvm::Error runGeneric(const Node &node);
  llvm::Error runRead(const Node &node);
  llvm::Error runWrite(const Node &node);
  llvm::Error runFree(const Node &node);
  llvm::Error runAlias(const Node &node);
  llvm::Error runWait(const Node &node);
  llvm::Error runStart(const Node &node);
  llvm::Error runPack(const Node &node);
  llvm::Error runReturn(const Node &node);

  llvm::Error checkUse(const Node &node, const Value *operand) const;
  llvm::Error checkUses(const Node &node) const;
  llvm::Error checkSpaces(const Node &node) const;
  llvm::Error define(const Node &node, const Value *result, CollectiveIndex collective);
  llvm::Expected<int32_t> placeWorkspace(const Node &node, CollectiveIndex collective);
  bool mayTakeOver(const Node &node, const Value *result, int32_t buffer) const;
  bool mayReplace(const Node &node, int32_t buffer) const;
  llvm::Error takeOver(const Node &node, const Value *result, int32_t buffer);
  bool mayArriveIn(const Node &start, int32_t buffer) const;
  llvm::Error arriveIn(const Node &start, int32_t buffer, CollectiveIndex collective);
  void markUses(const Node &node);
  llvm::Expected<int32_t> partBuffer(const Node &pack, unsigned index, Place place) const;
  /// Follows packs: the buffer that holds the value's bytes now.
  int32_t ownerOf(int32_t buffer) const;
  CollectiveIndex startCollective(const Node &start);
  void releaseReturned(const Function &function);
  void dropEarlierResults(const Function &function);

  const Module &module;
  const std::vector<CarriedOver> carriedOver;
  ArenaMemory memory;
  llvm::StringSet<> taken;         ///< names that some function of the sequence uses
  llvm::StringMap<Result> results; ///< of earlier functions
  llvm::DenseMap<const State *, int32_t> stateBuffers;
  llvm::StringMap<int32_t> inputBuffers;
  llvm::DenseMap<const Value *, Holding> holdings; ///< of the current function
  llvm::DenseSet<uint64_t> freedNames;             ///< buffer and version
  std::map<CollectiveIndex, const Node *> pending; ///< started, not waited for
  llvm::DenseSet<CollectiveIndex> waitedHere;      ///< in the current function
  llvm::DenseSet<CollectiveIndex> handedOn;        ///< futures that are returned
  llvm::DenseMap<int32_t, const Value *> kept;     ///< buffers that outlive the function that created them
};

} // namespace fsdpc::check
