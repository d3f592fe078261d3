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
  arithmetic, ///< integers and floats
  single,     ///< of floats those of 16 bits and f32
};

struct Emitter {
  void (*emit)(SectionWriter &writer, const Node &node) = nullptr;
  Elements elements = Elements::any;
  /// Why the node cannot be printed for any target, or nullopt. Null: there is no such reason.
  std::optional<std::string> (*unsupported)(const Node &node) = nullptr;
};

/// Are the loops of the node written for it, element by element?
bool isGeneratedLoop(const Node &node);
/// Is it a scatter without arithmetic? Then its kernel takes elements of any type.
bool replacesElements(const Node &node);
/// Bytes of the f32 copies that the node needs of its operands and results of 16-bit floats if its kernel does not take
/// these (Dialect::takesHalves): operands, then results, each from a multiple of copyAlignmentBytes on.
int64_t widenedBytes(const Dialect &dialect, const Node &node);
constexpr int64_t copyAlignmentBytes = 256;
int64_t toMultiple(int64_t bytes); ///< of copyAlignmentBytes
/// What a node's scratch is made of: first the kernel's own `bytes`, then the f32 copies.
int64_t scratchWithCopies(const Dialect &dialect, const Node &node, int64_t bytes);
/// Of a planned node: what is its kernel's own.
int64_t ownScratchBytes(const Dialect &dialect, const Node &node);

/// Never without `emit`.
const Emitter &emitterOf(Op op);
/// Why the target cannot emit the node; nullopt if it can.
std::optional<std::string> unsupportedBy(const Dialect &dialect, const Node &node);

/// The families, one file each. Names are the enumerators of ops.def, so that the table can be expanded from it;
/// elementwise ops have one emitter, which takes their text from the op table.
namespace emitters {
extern const Emitter elementwise;
#define ELEMENTWISE_OP(enumerator, text, info)
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
