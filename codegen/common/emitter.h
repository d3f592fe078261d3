// How each op is printed: one table, expanded from ir/ops.def. Differences between targets are in their Dialect.
#pragma once

#include "codegen/common/dialect.h"
#include "codegen/common/section.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

/// Which element types the kernels of an op take.
enum class Elements : uint8_t {
  any,        ///< all types: they only move elements
  arithmetic, ///< integers and floats
  single,     ///< of the float types only those of 16 bits and f32
};

struct Emitter {
  void (*emit)(SectionWriter &writer, const Node &node) = nullptr;
  Elements elements = Elements::any;
  /// Returns why no target can print the node, or nullopt. A null pointer means that there is no such reason.
  std::optional<std::string> (*unsupported)(const Node &node) = nullptr;
};

/// Returns whether the node is printed as a generated elementwise loop, not as a call of a runtime kernel.
bool isGeneratedLoop(const Node &node);
/// Returns whether the node is a scatter without arithmetic. The kernel of such a node takes elements of any type.
bool replacesElements(const Node &node);
/// Bytes of the f32 copies of the node's operands and results of 16-bit floats, 0 if its kernel takes those
/// (Dialect::takesHalves). Operands precede results, each at a multiple of copyAlignmentBytes.
int64_t promotedBytes(const Dialect &dialect, const Node &node);
constexpr int64_t copyAlignmentBytes = 256;
int64_t toMultiple(int64_t bytes); ///< rounds up to a multiple of copyAlignmentBytes
/// The total scratch of a node: first the kernel's own `bytes`, then the f32 copies.
int64_t scratchWithCopies(const Dialect &dialect, const Node &node, int64_t bytes);
/// The part of a planned node's scratch that belongs to its kernel.
int64_t ownScratchBytes(const Dialect &dialect, const Node &node);

/// Ensures that `emit` is set.
const Emitter &emitterOf(Op op);
/// Why the target cannot emit the node; nullopt if it can.
std::optional<std::string> unsupportedBy(const Dialect &dialect, const Node &node);

/// One file per family of ops. Names are the enumerators of ops.def, so that the table can be expanded from it. All
/// elementwise ops share one emitter, which takes their text from the op table.
namespace emitters {
extern const Emitter elementwise;
#define ELEMENTWISE_OP(enumerator, text, info)
#define OP(enumerator, text, info) extern const Emitter enumerator;
#include "ir/ops.def"
} // namespace emitters

/// LossShape's designated initializer.
std::string lossText(int64_t rows, int64_t classes, const LossAttributes &attributes, double softcap = 0);

int64_t productOf(llvm::ArrayRef<int64_t> dims);
/// [outer, dims[axis], inner]
struct AxisSplit {
  int64_t outer, count, inner;
};
AxisSplit splitAt(llvm::ArrayRef<int64_t> dims, int64_t axis);
Shape rowMajor(llvm::ArrayRef<int64_t> dims);
/// Strides of a row-major operand broadcast to `shape` (right-aligned), 0 in broadcast dims.
Shape broadcastStridesOf(llvm::ArrayRef<int64_t> operand, llvm::ArrayRef<int64_t> shape);

} // namespace fsdpc
