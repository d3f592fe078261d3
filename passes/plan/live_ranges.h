// Exact live ranges of every buffer over all functions of a module. The memory plan and its report are based on them.
#pragma once

#include "ir/module.h"
#include "ir/target.h"
#include "llvm/ADT/DenseMap.h"
#include <limits>

namespace fsdpc {

enum class MemoryClass : uint8_t {
  parameters,
  optimizer,
  gradients,
  gathered,
  activations,
  workspace,
  communication,
  inputs,
  other
};
inline constexpr size_t memoryClassCount = 9;
llvm::StringRef nameOf(MemoryClass memoryClass); // as in plan.json

/// Positions number the nodes of all functions in their order: prologue, micro_step, tap_gradients, update, eval_step,
/// predict, export. A buffer that a step passes to the next lives from `begin` to the end of the step, and from the
/// first position to `carriedUntil`.
struct Buffer {
  Value *root = nullptr;   ///< null for a state, an input (then `name` names it) or a workspace
  std::string name;        ///< for display
  Node *definer = nullptr; ///< the node that begins it; null if permanent
  int64_t bytes = 0;
  Space space = Space::privateSpace;
  MemoryClass memoryClass = MemoryClass::activations;
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  int64_t carriedUntil = -1; ///< in the next step; -1: not passed to the next step
  bool permanent = false;
  std::vector<Value *>
      roots; ///< all values that own this memory one after the other (in place) or in other functions (carried)
  Place place;

  /// Plans are about device memory. Host memory is counted separately.
  bool isOnDevice() const { return space != Space::host; }
  bool livesAt(int64_t position) const {
    return permanent || (begin <= position && position <= end) || position <= carriedUntil;
  }
  /// True if both are live at some position. Otherwise they may share memory.
  bool meets(const Buffer &other) const {
    bool apart = end < other.begin || other.end < begin;
    return !apart || begin <= other.carriedUntil || other.begin <= carriedUntil;
  }
};

class LiveRanges {
public:
  /// Requires stage async or planned.
  LiveRanges(const Module &module, const Target &target);

  std::vector<Buffer> buffers;
  llvm::DenseMap<Value *, size_t> bufferOfRoot;
  llvm::StringMap<size_t> bufferOfState;
  llvm::StringMap<size_t> bufferOfInput;
  llvm::DenseMap<Node *, size_t> bufferOfWorkspace;
  /// The node at each position.
  std::vector<Node *> nodeAt;
  /// The positions of predict: [predictBegin, predictEnd). Its memory is mapped for runs that predict only.
  int64_t predictBegin = 0, predictEnd = 0;
  bool isOfPredict(const Buffer &buffer) const {
    return !buffer.permanent && buffer.begin >= predictBegin && buffer.begin < predictEnd;
  }

  /// Live bytes at each position, over all device buffers except the permanent ones. 0 in predict.
  std::vector<int64_t> liveBytes() const;

private:
  class Collector;
};

} // namespace fsdpc
