// Tools for tests of ops: build a function, run it in the reference evaluator, compare its derivative with finite
// differences.
//
// The reverse sweep here is the test's own specification of reverse mode (about 60 lines over VjpContext). The pass
// `differentiate` is checked against it elsewhere.
#pragma once

#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "gtest/gtest.h"
#include <functional>
#include <string>
#include <vector>

namespace fsdpc {

/// Builds the function under test from its arguments and returns its results.
using BuildFunction = std::function<llvm::SmallVector<Value *, 4>(Builder &builder, llvm::ArrayRef<Value *> inputs)>;

struct GradientInput {
  Type type;
  double low = -1, high = 1;       ///< uniform random values; integers and bools are random integers in [low, high)
  std::vector<double> values = {}; ///< used instead, if not empty; shared by all ranks
  bool differentiate = true;       ///< integers never are
};

struct GradientCase {
  std::vector<GradientInput> inputs = {};
  BuildFunction build;
  int64_t ranks = 1;       ///< > 1: the loss is the sum over ranks of every rank's weighted results
  double step = 1e-5;      ///< central differences
  double tolerance = 1e-6; ///< |a - b| <= tolerance * (1 + max(|a|, |b|))
};

/// EXPECTs that for loss = sum over float results of <fixed random weights, result>, the gradient built from the ops'
/// derivatives equals central differences, for every element of every differentiable input of every rank. An input no
/// result depends on must get no cotangent or a zero one. Int results are ignored. Records the ops used (OP_TEST).
void checkGradients(const GradientCase &gradientCase);

/// Like checkGradients, but returns the mismatch as text (empty: none), so that a test can expect one.
std::string gradientMismatch(const GradientCase &gradientCase);

/// Gradients of sum(results x seeds) by the ops' derivatives, per input (empty tensor for inputs that get no
/// cotangent): for exact expectations at ties and kinks. One rank. `seeds` per result; missing ones are ones.
std::vector<HostTensor> gradientsOf(const std::vector<HostTensor> &inputs, const BuildFunction &build,
                                    const std::vector<HostTensor> &seeds = {});

/// Results of a function of `inputs` on one rank. Records the ops used.
std::vector<HostTensor> valuesOf(const std::vector<HostTensor> &inputs, const BuildFunction &build);
/// The same on inputs.size() ranks: [rank][result]. Without a mesh all ranks are axis `shard`.
std::vector<std::vector<HostTensor>> valuesOnRanks(const std::vector<std::vector<HostTensor>> &inputs,
                                                   const BuildFunction &build, const std::vector<MeshAxis> &mesh = {});

/// A tensor with these values: tensorOf(Type(DType::f32, {2, 2}), {1, 2, 3, 4}).
HostTensor tensorOf(Type type, std::vector<double> values);
/// The message of the op's shape rule for these operand types; empty if it accepts them.
std::string inferMessage(Op op, llvm::ArrayRef<Type> operands, std::unique_ptr<AttributesBase> attributes = nullptr);
template <class A>
  requires requires(A a, AttributeVisitor &visitor) { a.fields(visitor); }
std::string inferMessage(Op op, llvm::ArrayRef<Type> operands, A attributes) {
  std::unique_ptr<AttributesBase> base = std::make_unique<Attributes<A>>(std::move(attributes));
  return inferMessage(op, operands, std::move(base));
}
/// Result types by the op's shape rule; EXPECTs that it accepts.
llvm::SmallVector<Type, 4> inferredTypes(Op op, llvm::ArrayRef<Type> operands,
                                         std::unique_ptr<AttributesBase> attributes = nullptr);

/// For tests that run their own module: counts the ops of all its functions as exercised.
void recordExercisedOps(const Module &module);

// ---- which op has a test: op_table_test.cpp walks the table and fails for ops without one

bool registerOpTest(Op op);
bool hasOpTest(Op op);

/// Fails the running test on scope exit if the test never ran the op.
class OpTestScope {
public:
  explicit OpTestScope(Op op);
  ~OpTestScope();

private:
  Op op;
};

/// A test of one op, registered for the walk over the op table: OP_TEST(softmax, RowsSumToOne) { ... }. The op is named
/// by its enumerator.
#define OP_TEST(op, Sentence)                                                                                          \
  [[maybe_unused]] static const bool op##Sentence##Registered = ::fsdpc::registerOpTest(::fsdpc::Op::op);              \
  static void op##Sentence##Body();                                                                                    \
  TEST(op##Op, Sentence) {                                                                                             \
    ::fsdpc::OpTestScope scope(::fsdpc::Op::op);                                                                       \
    op##Sentence##Body();                                                                                              \
  }                                                                                                                    \
  static void op##Sentence##Body()

} // namespace fsdpc
