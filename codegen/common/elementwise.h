// What loops and kernels over elementwise chains have in common: the dims to walk, and the text of each step.
#pragma once

#include "ir/node.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// Dims that every operand walks alike are merged: outermost first, and per operand its stride in each.
struct Nest {
  Shape dims;
  std::vector<Shape> strides;
};
Nest nestOf(const Node &node, llvm::ArrayRef<int64_t> shape);

/// The expression of one step over the texts of its arguments, each of cppValueType. `dtype` is that of the first
/// argument. 16-bit floats are rounded after every step, as the IR's types say.
std::string stepText(const Expression::Step &step, DType dtype, llvm::ArrayRef<std::string> arguments);

/// An element as it is computed with, and back.
std::string loadText(const Type &type, llvm::StringRef element);
std::string storeText(const Type &type, llvm::StringRef value);

/// RandomShape's designated initializer, for a random_uniform step of a chain of this shape.
std::string randomShapeText(const Expression::Step &step, llvm::ArrayRef<int64_t> shape);

} // namespace fsdpc
