// Determines the memory of each value. Shared by frees and the memory plan.
#pragma once

#include "ir/module.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

/// The value that owns the memory, and the offset in it.
struct BufferRef {
  Value *root = nullptr; ///< a node's result, an argument, or the result of a state's read
  int64_t offsetBytes = 0;
};

/// Aliases are: views and reshapes of their operand; the result of `wait` (its future's buffer); parts of a `pack`
/// (inside the pack's buffer); optimizer results that are written back to the state they were read from, and collective
/// results for a state whose old version has no more readers (the state's memory). The same applies to accumulators:
/// the sum replaces the previous sum in place, and zeros replace a sum that has been used. Valid while the function's
/// nodes do not change.
class BufferAnalysis {
public:
  explicit BufferAnalysis(const Function &function);

  BufferRef bufferOf(Value *value) const;
  /// The state that owns the root's memory; empty if no state does.
  llvm::StringRef stateOf(const Value *root) const;

private:
  llvm::DenseMap<const Value *, llvm::StringRef> deliveredTo; ///< future or sum -> the state that it is written to
  llvm::DenseMap<Value *, BufferRef> parentOf;                ///< one step towards the root
};

} // namespace fsdpc
