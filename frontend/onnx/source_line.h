// What the author wrote: the source lines that the dynamo exporter quotes in a node's stack trace.
#pragma once

#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace fsdpc {

/// The line that called the operation, innermost: "output = output * (1.0 + self.weight.float())". "" if the node
/// quotes none.
llvm::StringRef sourceLine(const onnx::NodeProto &node);

/// `self.<attribute>` and a number, the only two operands of one operation in a line of Python.
struct NumberBeside {
  char operation = 0; ///< + - * /
  float number = 0;
  bool isNumberFirst = false;

  bool operator==(const NumberBeside &) const = default;
};

/// The attribute's term, which stands alone: in brackets, between commas, or behind = or return. Conversions of its
/// type, `.float()`, are passed over. None if the line has no such term, or two that differ, or uses the attribute
/// elsewhere too.
std::optional<NumberBeside> numberBeside(llvm::StringRef line, llvm::StringRef attribute);

} // namespace fsdpc
