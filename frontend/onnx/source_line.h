// The author's source lines, which the dynamo exporter quotes in a node's stack trace.
#pragma once

#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace fsdpc {

/// The innermost line that called the operation: "output = output * (1.0 + self.weight.float())". "" if the node quotes
/// none.
llvm::StringRef sourceLine(const onnx::NodeProto &node);

/// `self.<attribute>` and a number, the only two operands of one operation in a line of Python.
struct ScalarOperand {
  char operation = 0; ///< + - * /
  float number = 0;
  bool isNumberFirst = false;

  bool operator==(const ScalarOperand &) const = default;
};

/// Finds the attribute's term, which must be a complete expression: in brackets, between commas, or after = or return.
/// Conversions of its type, `.float()`, are skipped. nullopt if the line has no such term, has two different ones, or
/// uses the attribute elsewhere too.
std::optional<ScalarOperand> findScalarOperand(llvm::StringRef line, llvm::StringRef attribute);

} // namespace fsdpc
