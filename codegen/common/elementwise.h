// Shared by loops and kernels of elementwise chains: the dims to iterate over, and the text of each step.
#pragma once

#include "ir/node.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// The dims to iterate over, outermost first, and per operand its stride in each. Adjacent dims that every operand
/// traverses as one are merged.
struct Nest {
  Shape dims;
  std::vector<Shape> strides;
};
Nest nestOf(const Node &node, llvm::ArrayRef<int64_t> shape);

/// The expression of one step over the texts of its arguments, each of cppValueType. `dtype` is that of the first
/// argument. 16-bit floats are rounded after every step, as the IR's types require.
std::string stepText(const Expression::Step &step, DType dtype, llvm::ArrayRef<std::string> arguments);

/// Convert between a stored element and the type in which it is computed.
std::string loadText(const Type &type, llvm::StringRef element);
std::string storeText(const Type &type, llvm::StringRef value);

/// RandomShape's designated initializer, for a random_uniform step of a chain of this shape.
std::string randomShapeText(const Expression::Step &step, llvm::ArrayRef<int64_t> shape);

} // namespace fsdpc
