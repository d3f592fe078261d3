// The op table: one constant descriptor per op has everything that the compiler knows about its meaning.
//
// A descriptor has the operands and attributes, the shape rule (`infer`), the value in f64 (`evaluate`), the derivative
// (`vjp` or notDifferentiable), the cost, the stages that may contain the op, the position of the batch in its results,
// which results are sums, and for elementwise ops the C++ text. Printer, parser, verifier, equality, evaluator and
// passes are generic over it. The target defines how other ops are emitted (codegen/<target>/emitters).
#pragma once

#include "ir/batch_position.h"
#include "ir/node.h"
#include "ir/stage.h"
#include "llvm/ADT/FunctionExtras.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// Nodes of one class have one rate (passes/cost/hardware.h). `softmax`: also the losses over classes. `loop`: fused
/// and elementwise nodes. `reduce`: also pooling. `move`: transposes, gathers, concatenations, everything else that
/// only copies. `none`: takes no time, or is a transfer. `unknown`: the default, which a descriptor must replace.
enum class ComputeClass : uint8_t {
  matmul,
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
inline constexpr size_t computeClassCount = 9; ///< classes that have a rate

class Builder;
struct EvaluateContext; // ir/eval/evaluate.h
struct VjpContext;

enum class Op : uint16_t {
#define OP(enumerator, text, info) enumerator,
#include "ir/ops.def"
};

/// The theoretical cost of one execution. Targets scale it.
struct Cost {
  double flops = 0;
  double bytesRead = 0;
  double bytesWritten = 0;
};

enum OpTrait : uint32_t {
  noTraits = 0,
  /// No effect other than its results. May be removed when unused and merged when equal.
  pure = 1 << 0,
  /// Computes each element of its result from the same element of each operand. Has `scalar` and may join a fused node.
  elementwise = 1 << 1,
  /// The result is the operand's memory with another type (reshape, view), at no cost.
  aliasesOperand = 1 << 2,
  /// Result 0 may be written over operand 0, result i > 0 over operand i + 1 (optimizers: operand 1 is the gradient).
  inPlace = 1 << 3,
  /// Communicates with other ranks.
  collective = 1 << 4,
  /// Runs on a transfer stream, as a collective or as a copy to or from the host. Its result is a future.
  startsTransfer = 1 << 5,
  /// Needs the evaluator's engine (state, collectives): `evaluate` goes through EvaluateContext::environment.
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

/// How the emitted loops for elementwise nodes compute one element.
struct ElementBody {
  /// A C++ expression. {0}, {1}, ... are the texts of the arguments, all of one type, and {T} is the result's type. The
  /// functions of the runtime are in `scalar::`.
  llvm::StringRef text = {};
  llvm::StringRef integerText = {}; ///< for integer arguments; empty: the same as for floats
  double operations = 1; ///< vector instructions per element: polynomials for transcendentals, ten rounds for Philox
  bool wraps = false;    ///< small integers are computed in int, then the result wraps to its own width
  bool isExact = false;  ///< the result is an argument or its negative, so nothing is rounded
};

struct OpInfo {
  llvm::StringRef name; ///< in text
  llvm::StringRef doc;  ///< one sentence: result in terms of operands; constraints (C1), (C2), ...
  llvm::ArrayRef<llvm::StringRef>
      operandNames; ///< the last one may end in "...": any number; the last ones in "?": optional
  uint32_t traits = noTraits;
  std::unique_ptr<AttributesBase> (*makeAttributes)() = nullptr; ///< null: the op has none
  InferFunction infer = nullptr; ///< result types from operand types; its errors quote (C1).. and name the op's rule
  EvaluateFunction evaluate = nullptr;
  ScalarFunction scalar = nullptr; ///< elementwise ops: the value of one element
  VjpFunction vjp = nullptr;       ///< never null: notDifferentiable if there is no derivative
  CostFunction cost = nullptr;     ///< never null
  ComputeClass computeClass = ComputeClass::unknown;
  Stages stages = {};        ///< stages that may contain it
  BatchRule batch = nullptr; ///< null: it never has batched operands, or the batch is lost
  int firstSum = -1;         ///< the first result that is a sum and may accumulate in f32 if it has 16 bits; -1: none
  AccumulateFunction accumulateInF32 = nullptr; ///< attributes for accumulating in f32, if firstSum >= 0
  ElementBody element = {};                     ///< elementwise ops

  bool has(OpTrait trait) const { return traits & trait; }
  unsigned minOperands() const;
  unsigned maxOperands() const; ///< ~0u: any number
};

/// States explicitly that there is no derivative: gradient flow stops here.
void notDifferentiable(VjpContext &context);
/// flops = result elements, bytes from the types. The default for cheap ops.
Cost costOfTypes(const Node &node);

const OpInfo &infoOf(Op op);
std::optional<Op> opFromName(llvm::StringRef name);
llvm::ArrayRef<Op> allOps();
inline const OpInfo &infoOf(const Node &node) { return infoOf(node.op()); }
inline bool isElementwise(const Node &node) { return infoOf(node).has(elementwise); }
inline bool startsCollective(const Node &node) {
  return infoOf(node).has(startsTransfer) && infoOf(node).has(collective);
}
/// Planned stage: true if the pack writes nothing. Its parts are already in place, and a pack only clears the bytes
/// that no part covers.
inline bool isPackInPlace(const Node &node) {
  if (node.op() != Op::pack)
    return false;
  int64_t bytes = 0;
  for (const Value *part : node.operands())
    bytes += part->type().bytes();
  return bytes == node.result()->type().bytes();
}
/// True if the trait inPlace allows this result to overwrite this operand.
inline bool isWrittenInPlace(const Node &node, unsigned result, unsigned operand) {
  return infoOf(node).has(inPlace) && operand == (result == 0 ? 0 : result + 1);
}

/// The input and output of a derivative rule: given the cotangents of the results, it builds nodes and sets the
/// cotangents of the operands.
///
/// Convention (ir/README.md, R7): the cotangent of a value is the derivative of the one global loss with respect to
/// this rank's value. Values without a cotangent (null) do not influence the loss.
struct VjpContext {
  Builder &builder;
  const Node &node;
  llvm::ArrayRef<Value *> resultCotangents;         ///< per result; null: zero
  llvm::MutableArrayRef<Value *> operandCotangents; ///< to be set; preset to null
  llvm::ArrayRef<bool> needed;                      ///< per operand: true if its cotangent is used
};

/// Error for a violated constraint: "matmul: (C2) inner dims differ: f32[4,3] x f32[2,5]".
llvm::Error constraintError(llvm::StringRef op, llvm::StringRef constraint, const llvm::Twine &message);

} // namespace fsdpc
