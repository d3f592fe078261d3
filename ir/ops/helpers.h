// Shared by the descriptor files: operand lists, checks, index arithmetic, costs.
//
// Constraint (C0) holds for all ops and is not repeated in their docs: as many operands as named, each a tensor.
// `accumulate_f32`, which makes the sums that an op returns f32, needs operands of 16-bit floats.
#pragma once

#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

// A namespace-scope const has internal linkage unless it was declared extern before: here, for all descriptors.
#define OP(enumerator, text, info) extern const OpInfo info;
#include "ir/ops.def"

/// OpInfo::operandNames of common arities.
inline constexpr llvm::StringRef namesX[] = {"x"};
inline constexpr llvm::StringRef namesAB[] = {"a", "b"};

/// For OpInfo::makeAttributes.
template <class A>
std::unique_ptr<AttributesBase> makeAttributes() {
  return std::make_unique<Attributes<A>>();
}
/// For OpInfo::accumulateInF32.
template <class A>
std::unique_ptr<AttributesBase> accumulateInF32(const Node &node) {
  A attributes = node.get<A>();
  attributes.accumulateF32 = true;
  return std::make_unique<Attributes<A>>(std::move(attributes));
}
template <class A>
const A &attributesOf(const AttributesBase *attributes) {
  assert(attributes && attributes->typeId() == Attributes<A>::id() && "attribute struct of another op");
  return static_cast<const Attributes<A> *>(attributes)->value;
}

// ---- checks for `infer`; errors as constraintError makes them

/// (C0): the operand count matches the descriptor's names and every operand is a tensor. First line of every `infer`,
/// except for ops that take futures or tokens.
llvm::Error checkOperands(const OpInfo &info, llvm::ArrayRef<Type> operands);
/// Appends the result type. Fails if a dim is negative or the size exceeds maxBytes.
llvm::Error addResult(const OpInfo &info, llvm::StringRef constraint, DType dtype, llvm::ArrayRef<int64_t> shape,
                      llvm::SmallVectorImpl<Type> &results);
/// 0 <= axis < rank.
llvm::Error checkAxis(const OpInfo &info, llvm::StringRef constraint, int64_t axis, int64_t rank);
/// Axes ascending without repetition, each in [0, rank).
llvm::Error checkAxes(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<int64_t> axes, int64_t rank);
/// "(C1) operand b is f32[2], a is f32[3]" unless both are equal.
llvm::Error checkSame(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<Type> operands, unsigned a,
                      unsigned b);
llvm::Error checkFloat(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<Type> operands, unsigned operand);
/// dtype i64 or i32.
llvm::Error checkIndex(const OpInfo &info, llvm::StringRef constraint, llvm::ArrayRef<Type> operands, unsigned operand);
/// The dtype of a sum: that of its elements, or f32 with accumulate_f32, which requires 16-bit elements.
llvm::Expected<DType> dtypeOfSum(const OpInfo &info, DType elements, bool accumulateF32);
/// [2,3]
std::string shapeText(llvm::ArrayRef<int64_t> shape);

// ---- index arithmetic for `evaluate`

Shape rowMajorStrides(llvm::ArrayRef<int64_t> shape);
/// Advances to the next index in row-major order. Returns false after the last one, with all coordinates back at zero.
bool advance(llvm::MutableArrayRef<int64_t> coordinates, llvm::ArrayRef<int64_t> shape);
int64_t flatIndex(llvm::ArrayRef<int64_t> coordinates, llvm::ArrayRef<int64_t> strides);
/// Calls visit(flat, coordinates) for every index of `shape` in row-major order. Makes no calls if a dim is zero.
template <class Visit>
void forEachIndex(llvm::ArrayRef<int64_t> shape, Visit visit) {
  if (checkedElements(shape) == 0)
    return;
  Shape coordinates(shape.size(), 0);
  int64_t flat = 0;
  do
    visit(flat++, llvm::ArrayRef<int64_t>(coordinates));
  while (advance(coordinates, shape));
}
/// Strides that map an index of `to` to a tensor of shape `from` that is broadcast to it (numpy rules). 0 along
/// stretched axes.
Shape broadcastStrides(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);
/// Whether `from` broadcasts to `to`: right-aligned, each dim equal or 1, rank not larger.
bool broadcastsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);
/// `shape` without `axes` (ascending), or with 1 in their place.
Shape reducedShape(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes, bool keepDims);
/// Product of dims [from, to).
int64_t productOf(llvm::ArrayRef<int64_t> shape, int64_t from, int64_t to);

// ---- derivatives

/// The value of every element, if it is a constant (seen through broadcast and reshape). Otherwise nullopt.
std::optional<double> splatOf(const Value *value);

// ---- costs

/// For ops whose result aliases their operand.
Cost costNothing(const Node &node);
/// Bytes from the types, flops as given.
Cost costWithFlops(const Node &node, double flops);
/// Like costOfTypes, but reads only the selected elements of operand 0. For gathers and slices.
Cost costOfSelection(const Node &node);

} // namespace fsdpc
