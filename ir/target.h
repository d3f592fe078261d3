// What passes may know of a target. Implemented under codegen/<target>, injected by the driver.
#pragma once

#include "ir/module.h"
#include "ir/op.h"

namespace fsdpc {

class Target {
public:
  virtual ~Target() = default;
  virtual llvm::StringRef name() const = 0;
  /// Start of every value in an arena, bytes.
  virtual int64_t alignmentBytes() const = 0;
  /// Arenas are multiples of this.
  virtual int64_t arenaGranuleBytes() const = 0;
  /// Scratch that the target's implementation of the node needs while it runs; 0 for most.
  virtual int64_t workspaceBytes(const Node &node) const = 0;
  /// Must this operand (or result) of a collective lie in the window space?
  virtual bool operandInWindow(const Node &collective, unsigned operand) const = 0;
  virtual bool resultInWindow(const Node &collective) const = 0;
  /// May a result of this node be written over operand `operand` when that operand dies here? (fused loops: same shape
  /// and size)
  virtual bool mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const = 0;
  /// Does a start run on a stream of its own, ordered behind compute by nothing but the events it awaits? If not, it is
  /// issued by the thread that computes, and has what stands above it behind it.
  virtual bool ordersByEvents() const { return false; }
  /// Predicted time of one execution.
  virtual double costMicroseconds(const Node &node) const = 0;
  /// Predicted time that a copy of so many bytes between device and host takes from computing that lasts so long and
  /// may run beside it.
  virtual double exposedCopyMicroseconds(int64_t bytes, double besideMicroseconds) const = 0;
  /// Why no library of the target computes this attention or attention_grad as the op means it; nullopt if one does.
  virtual std::optional<std::string> whyNotByLibrary(const Node &attention) const {
    return "the target has no library for it";
  }
  /// Does the target have an emitter for the op? An explanation if not.
  virtual std::optional<std::string> unsupported(const Node &node) const = 0;
};

} // namespace fsdpc
