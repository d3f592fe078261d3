// The op table: one constant descriptor per op says everything the compiler knows about its meaning.
//
// A descriptor has: operands and attributes, the shape rule (`infer`), the value in f64 (`evaluate`), the derivative
// (`vjp` or notDifferentiable), what it costs, the stages it may stand in, where the batch comes out, which of its
// results are sums; elementwise ops, their text in C++. Printer, parser, verifier, equality, evaluator and passes are
// generic over it. How other ops are emitted is the target's business (codegen/<target>/emitters).
#pragma once

#include "ir/batch_position.h"
#include "ir/node.h"
#include "ir/stage.h"
#include "llvm/ADT/FunctionExtras.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Nodes of one class run at one rate (passes/cost/hardware.h). `product`: matmul. `softmax`: also the losses over
/// classes. `loop`: fused and elementwise nodes. `reduce`: also pooling. `move`: transposes, gathers, concatenations,
/// everything else that only copies. `none`: takes no time, or is a transfer. `unknown`: a descriptor has to say.
enum class ComputeClass : uint8_t {
  product,
  convolution,
  attention,
  normalization,
  softmax,
  loop,
  reduce,
  move,
  optimizer,
  none,
  unknown
};
inline constexpr size_t computeClassCount = 9; ///< of those that have a rate

class Builder;
struct EvaluateContext; // ir/eval/evaluate.h
struct VjpContext;

enum class Op : uint16_t {
#define OP(enumerator, text, info) enumerator,
#include "ir/ops.def"
};

/// What one execution costs on paper; targets scale it.
struct Cost {
  double flops = 0;
  double bytesRead = 0;
  double bytesWritten = 0;
};

enum OpTrait : uint32_t {
  noTraits = 0,
  /// No effect but its results; may be removed when unused, merged when equal.
  pure = 1 << 0,
  /// Computes each element of its result from the same element of each operand; has `scalar`; may join a fused node.
  elementwise = 1 << 1,
  /// The result is the operand's memory under another type (reshape, view): costs nothing.
  aliasesOperand = 1 << 2,
  /// Result 0 may be written over operand 0, result i > 0 over operand i + 1 (optimizers: operand 1 is the gradient).
  inPlace = 1 << 3,
  /// Talks to other ranks.
  collective = 1 << 4,
  /// A stream of transfers carries it out, be it a collective or a copy to or from the host; its result is a future.
  startsTransfer = 1 << 5,
  /// The evaluator's engine runs it (state, collectives): `evaluate` goes through EvaluateContext::environment.
  usesEnvironment = 1 << 6,
  commutative = 1 << 7,
};

using InferFunction = llvm::Error (*)(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                                      llvm::SmallVectorImpl<Type> &results);
using EvaluateFunction = void (*)(EvaluateContext &);
using ScalarFunction = double (*)(const double *arguments, DType dtype);
using VjpFunction = void (*)(VjpContext &);
using CostFunction = Cost (*)(const Node &);

using AccumulateFunction = std::unique_ptr<AttributesBase> (*)(const Node &);

/// How the loops that programs have for elementwise nodes compute one element.
struct ElementBody {
  /// C++ over the arguments {0}, {1}, ..., which are texts of values of one type; {T} is the result's type. The
  /// runtime's functions are in `scalar::`.
  llvm::StringRef text = {};
  llvm::StringRef integerText = {}; ///< where the arguments are integers; empty: as for floats
  double operations = 1; ///< vector instructions of one element: polynomials for transcendentals, ten rounds for Philox
  bool wraps = false;    ///< arithmetic on small integers is done in int: the result wraps to its own width
  bool isExact = false;  ///< an argument or its negative: there is nothing to round
};

struct OpInfo {
  llvm::StringRef name; ///< in text
  llvm::StringRef doc;  ///< one sentence: result in terms of operands; constraints (C1), (C2), ...
  llvm::ArrayRef<llvm::StringRef> operandNames; ///< the last one may end in "..." (any number) or "?" (optional)
  uint32_t traits = noTraits;
  std::unique_ptr<AttributesBase> (*makeAttributes)() = nullptr; ///< null: the op has none
  InferFunction infer = nullptr; ///< result types from operand types; its errors quote (C1).. and name the op's rule
  EvaluateFunction evaluate = nullptr;
  ScalarFunction scalar = nullptr; ///< elementwise ops: the value of one element
  VjpFunction vjp = nullptr;       ///< never null: notDifferentiable where there is none
  CostFunction cost = nullptr;     ///< never null
  ComputeClass computeClass = ComputeClass::unknown;
  Stages stages = {};        ///< where it may stand
  BatchRule batch = nullptr; ///< null: it stands in no graph with a batch, or the batch is lost
  int firstSum = -1;         ///< the first result that is a sum, so that 16 bits may accumulate in f32; -1: none is
  AccumulateFunction accumulateInF32 = nullptr; ///< then: the attributes with which they do
  ElementBody element = {};                     ///< elementwise ops

  bool has(OpTrait trait) const { return traits & trait; }
  unsigned minOperands() const;
  unsigned maxOperands() const; ///< ~0u: any number
};

/// The explicit "no": gradient flow stops here.
void notDifferentiable(VjpContext &context);
/// flops = result elements, bytes from the types. The default of cheap ops.
Cost costOfTypes(const Node &node);

const OpInfo &infoOf(Op op);
std::optional<Op> opFromName(llvm::StringRef name);
llvm::ArrayRef<Op> allOps();
inline const OpInfo &infoOf(const Node &node) { return infoOf(node.op()); }
inline bool isElementwise(const Node &node) { return infoOf(node).has(elementwise); }
inline bool startsCollective(const Node &node) {
  return infoOf(node).has(startsTransfer) && infoOf(node).has(collective);
}
/// Planned: does a pack leave memory as it is? Its parts lie in it, and what no part covers it clears.
inline bool isWholePack(const Node &node) {
  if (node.op() != Op::pack)
    return false;
  int64_t bytes = 0;
  for (const Value *part : node.operands())
    bytes += part->type().bytes();
  return bytes == node.result()->type().bytes();
}
/// Does the trait inPlace allow this result to lie over this operand?
inline bool isWrittenInPlace(const Node &node, unsigned result, unsigned operand) {
  return infoOf(node).has(inPlace) && operand == (result == 0 ? 0 : result + 1);
}

/// A derivative rule's view: given cotangents of the results, it sets cotangents of the operands by building nodes.
///
/// Convention (ir/README.md, R7): the cotangent of a value is the derivative of the one global loss
/// with respect to this rank's value. Values without a cotangent (null) do not influence the loss.
struct VjpContext {
  Builder &builder;
  const Node &node;
  llvm::ArrayRef<Value *> resultCotangents;         ///< per result; null: zero
  llvm::MutableArrayRef<Value *> operandCotangents; ///< to be set; preset to null
  llvm::ArrayRef<bool> needed;                      ///< per operand: does anything want its cotangent
};

/// Error for a broken constraint: "matmul: (C2) inner dims differ: f32[4,3] x f32[2,5]".
llvm::Error constraintError(llvm::StringRef op, llvm::StringRef constraint, const llvm::Twine &message);

} // namespace fsdpc
