// What a step of several micro-steps keeps between them: every sum over the batch goes into a state that is zero
// between steps. micro_step and prologue add to it, update uses it and writes zeros behind its last use.
#pragma once

#include "ir/builder.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

class Accumulators {
public:
  explicit Accumulators(Module &module) : module(module) {}

  /// Are there micro-steps to sum over? If not, nothing else of this class may be called but sumScalar, which then
  /// gives back what it got.
  bool areNeeded() const { return module.microSteps > 1; }

  /// The state for the gradients of a trained segment: whole where the unit keeps gradients or the segment is whole,
  /// else this rank's share.
  void addFor(const State &segment, const Unit &unit);
  const State &of(const State &segment) const { return *bySegment.lookup(segment.name); }

  /// state += summand, in the state's type, at the builder's place.
  Value *add(Builder &builder, const State &accumulator, Value *summand);
  /// state = 0
  void clear(Builder &builder, const State &accumulator);
  /// Of all numbers, at the end of update.
  void clearScalars(Builder &builder);

  /// What `sum`, which is over the ranks, is over the micro-steps too: from the last call of its function on, and where
  /// it is carried to. `batchSum` is the node that it takes the place of.
  Value *sumScalar(const Node &batchSum, Value *sum);
  /// Carried numbers are read from their accumulators instead; functions that run once may also take what the last
  /// micro-step returned. Error: something else is carried between functions that run several times.
  llvm::Error replaceCarried();

private:
  std::string freeName(std::string name) const;
  llvm::Error readInstead(Function &function, unsigned argument);

  Module &module;
  llvm::StringMap<const State *> bySegment;
  std::vector<const State *> scalars;
  llvm::StringMap<const State *> carried; ///< by result's name
};

} // namespace fsdpc
