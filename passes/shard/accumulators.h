// State that a step of several micro-steps keeps between them. Every sum over the batch is accumulated in a state that
// is zero between steps. micro_step and prologue add to it. update uses it and writes zeros after its last use.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

class Accumulators {
public:
  explicit Accumulators(Module &module) : module(module) {}

  /// True with several micro-steps. Otherwise only sumScalar may be called, which then returns its operand.
  bool areNeeded() const { return module.microSteps > 1; }

  /// Adds the state for the gradients of a trained segment: unsharded where the unit keeps gradients or the segment is
  /// unsharded, else this rank's shard.
  void addFor(const State &segment, const Unit &unit);
  const State &of(const State &segment) const { return *bySegment.lookup(segment.name); }

  /// state += summand, in the state's type, at the builder's position.
  Value *add(Builder &builder, const State &accumulator, Value *summand);
  /// state = 0
  void clear(Builder &builder, const State &accumulator);
  /// Clears all scalar accumulators, at the end of update.
  void clearScalars(Builder &builder);

  /// Returns the sum over micro-steps of `sum`, which is already summed over the ranks. It is complete after the last
  /// call of its function and in the functions it is carried to. `batchSum` is the node it replaces.
  Value *sumScalar(const Node &batchSum, Value *sum);
  /// Replaces carried scalars by reads of their accumulators. Functions that run once may also use the value that the
  /// last micro-step returned. Error: any other value is carried between functions that run several times.
  llvm::Error replaceCarried();

private:
  std::string freeName(std::string name) const;
  llvm::Error readInstead(Function &function, unsigned argument);

  Module &module;
  llvm::StringMap<const State *> bySegment;
  std::vector<const State *> scalars;
  llvm::StringMap<const State *> carried; ///< by name of the result
};

} // namespace fsdpc
