// The properties of a target that passes may use. Implemented under codegen/<target>, injected by the driver.
#pragma once

#include "ir/module.h"
#include "ir/op.h"

namespace fsdpc {

class Target {
public:
  virtual ~Target() = default;
  virtual llvm::StringRef name() const = 0;
  /// Alignment of every value in an arena, in bytes.
  virtual int64_t alignmentBytes() const = 0;
  /// Arena sizes are multiples of this.
  virtual int64_t arenaGranuleBytes() const = 0;
  /// Scratch that the target's implementation of the node needs while it runs; 0 for most.
  virtual int64_t workspaceBytes(const Node &node) const = 0;
  /// The most capable processors that workspaceBytes holds for, by the name that programs give them; "": all.
  virtual std::string workspaceLevel() const { return ""; }
  /// True if this operand (or result) of a collective must be in the window space.
  virtual bool operandInWindow(const Node &collective, unsigned operand) const = 0;
  virtual bool resultInWindow(const Node &collective) const = 0;
  /// True if a result of this node may overwrite operand `operand` at the operand's last use (fused loops: same shape
  /// and size).
  virtual bool mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const = 0;
  /// True if a start runs on its own stream, ordered after compute only by the events it awaits. If not, the computing
  /// thread issues it, so it runs after everything that precedes it in the list.
  virtual bool ordersByEvents() const { return false; }
  /// Bytes of a rank that the program maps beside its arenas if its ranks live on several hosts.
  virtual int64_t hostLinkBytes(const Module &) const { return 0; }
  /// Positions whose logits a loss over chunks computes at once: few enough to save memory, and so many that adding to
  /// the gradient of the weight once a chunk costs little beside the chunk's matmuls.
  virtual int64_t lossChunk() const { return 512; }
  /// Predicted time of one execution.
  virtual double costMicroseconds(const Node &node) const = 0;
  /// Predicted time of a copy of `bytes` between device and host that is not hidden by compute of the given duration,
  /// which may overlap with it.
  virtual double exposedCopyMicroseconds(int64_t bytes, double overlappedMicroseconds) const = 0;
  /// The reason why no library of the target computes this attention or attention_grad with the op's semantics. nullopt
  /// if one does.
  virtual std::optional<std::string> whyNotByLibrary(const Node &attention) const {
    return "the target has no library for it";
  }
  /// Explains why the target has no emitter for the op. nullopt if it has one.
  virtual std::optional<std::string> unsupported(const Node &node) const = 0;
};

} // namespace fsdpc
