// A target without target-specific behavior, for tests of passes.
#pragma once

#include "ir/target.h"

namespace fsdpc {

class PlainTarget final : public Target {
public:
  llvm::StringRef name() const override { return "plain"; }
  int64_t alignmentBytes() const override { return 64; }
  int64_t arenaGranuleBytes() const override { return 4096; }
  int64_t workspaceBytes(const Node &node) const override { return node.op() == Op::matmul ? 256 : 0; }
  bool operandInWindow(const Node &, unsigned) const override { return true; }
  bool resultInWindow(const Node &) const override { return false; }
  bool mayOverwriteOperand(const Node &node, unsigned result, unsigned operand) const override {
    return node.op() == Op::fused && node.result(result)->type() == node.operand(operand)->type();
  }
  double costMicroseconds(const Node &) const override { return 1; }
  double exposedCopyMicroseconds(int64_t, double) const override { return 1; }
  std::optional<std::string> unsupported(const Node &) const override { return std::nullopt; }
};

} // namespace fsdpc
