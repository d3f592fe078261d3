// How each op is printed: one table, expanded from ir/ops.def. An op without an emitter says why.
#pragma once

#include "codegen/cpu/section.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

struct Emitter {
  void (*emit)(SectionWriter &writer, const Node &node) = nullptr;
  /// Why the node cannot be printed, or nullopt. Null: whatever node of the op the verifier lets through can.
  std::optional<std::string> (*unsupported)(const Node &node) = nullptr;
};

/// Never without `emit`.
const Emitter &emitterOf(Op op);
/// Why the cpu target cannot emit the node; nullopt if it can.
std::optional<std::string> unsupportedOnCpu(const Node &node);

/// The families, one file each. Names are the enumerators of ops.def, so that the table can be expanded from it.
namespace emitters {
#define OP(enumerator, text, info) extern const Emitter enumerator;
#include "ir/ops.def"
} // namespace emitters

/// Prints `attributes` over `operands` as loops, results as yielded.
void emitLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes);

/// All operands and results that hold numbers are f32 (labels, indices and scalars of optimizers are checked by the
/// shape rules).
std::optional<std::string> onlyF32(const Node &node);

int64_t productOf(llvm::ArrayRef<int64_t> dims);
/// [outer, dims[axis], inner]
struct AxisSplit {
  int64_t outer, count, inner;
};
AxisSplit splitAt(llvm::ArrayRef<int64_t> dims, int64_t axis);
Shape rowMajor(llvm::ArrayRef<int64_t> dims);
/// Strides of a row-major operand broadcast to `shape` (right-aligned); 0 where it stretches.
Shape broadcastStridesOf(llvm::ArrayRef<int64_t> operand, llvm::ArrayRef<int64_t> shape);

} // namespace fsdpc
