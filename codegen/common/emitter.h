// How each op is printed: one table, expanded from ir/ops.def. What the targets print differently is their Dialect's.
#pragma once

#include "codegen/common/dialect.h"
#include "codegen/common/section.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// Which element types the kernels of an op take.
enum class Elements : uint8_t {
  any,        ///< they move elements, whatever these are
  arithmetic, ///< integers, f32 and f64; 16-bit floats where the target computes with them
  single,     ///< of floats f32; 16-bit floats where the target computes with them
};

struct Emitter {
  void (*emit)(SectionWriter &writer, const Node &node) = nullptr;
  Elements elements = Elements::any;
  /// Why the node cannot be printed for any target, or nullopt. Null: there is no such reason.
  std::optional<std::string> (*unsupported)(const Node &node) = nullptr;
};

/// Never without `emit`.
const Emitter &emitterOf(Op op);
/// Why the target cannot emit the node; nullopt if it can.
std::optional<std::string> unsupportedBy(const Dialect &dialect, const Node &node);

/// The families, one file each. Names are the enumerators of ops.def, so that the table can be expanded from it.
namespace emitters {
#define OP(enumerator, text, info) extern const Emitter enumerator;
#include "ir/ops.def"
} // namespace emitters

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
