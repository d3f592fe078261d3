// The interface of a translation function: a checked ONNX node, its inputs as values of the module, and ways to build
// nodes.
//
// A translation function reads the node, builds nodes, and sets every output that is used. It rejects what it cannot
// translate. The rejection becomes part of one error message with the node's name, op, domain, opset and input types.
// Every built node is folded immediately if all its operands are constants, so shape arithmetic and masks never become
// nodes.
#pragma once

#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"
#include "frontend/onnx/translate/fold.h"
#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include <memory>
#include <optional>

namespace fsdpc {

/// Thrown by NodeTranslation, caught by the loop over nodes: never leaves this folder.
struct Rejection {
  std::string why;
};

/// The tensors of a sequence. Sequences exist while a graph is translated and become slices and concats.
using TensorSequence = std::vector<Value *>;

/// The translation of a name of the file's graph: a tensor, a sequence of tensors, or an empty optional.
struct Translated {
  Value *tensor = nullptr;
  std::shared_ptr<const TensorSequence> sequence;
  bool isEmptyOptional = false;
  bool exists() const { return tensor || sequence || isEmptyOptional; } ///< false: an error that is already reported
};

/// State shared by the translations of all nodes of a file.
class TranslationState {
public:
  TranslationState(const OnnxModel &model, Builder &builder, const ImportOptions &options)
      : model(model), builder(builder), trainMode(options.trainMode), syncBatchNorm(options.syncBatchNorm) {}
  const OnnxModel &model;
  Builder &builder;
  const TrainMode trainMode;
  const bool syncBatchNorm;
  ConstantFolder constants;
  int64_t dropouts = 0; ///< Dropout nodes so far, active or not: their instance numbers

  /// Counts nodes and elements of sequences that a node creates beyond a handful. Rejects totals beyond 2^22.
  void charge(int64_t nodes);

  /// i64[] states of the random generator, read once.
  Value *seed();
  Value *step();

private:
  Value *scalar(llvm::StringRef name, Value *&read);
  Value *seedRead = nullptr, *stepRead = nullptr;
  int64_t charged = 0;
};

class NodeTranslation {
public:
  /// `inputs`: null for an omitted one.
  NodeTranslation(TranslationState &state, const onnx::NodeProto &node, llvm::ArrayRef<Translated> inputs);

  TranslationState &state;
  const onnx::NodeProto &node;
  const int64_t opset;

  // ---- Inputs and outputs
  unsigned inputCount() const { return static_cast<unsigned>(inputs.size()); }
  bool hasInput(unsigned i) const { return i < inputs.size() && (inputs[i].tensor || inputs[i].sequence); }
  Value *input(unsigned i) const; ///< rejects if it is omitted or a sequence
  bool isSequence(unsigned i) const { return i < inputs.size() && inputs[i].sequence; }
  const TensorSequence &sequence(unsigned i) const; ///< rejects if it is omitted or a tensor
  bool wantsOutput(unsigned i) const { return static_cast<int>(i) < node.output_size() && !node.output(i).empty(); }
  void setOutput(unsigned i, Value *value) { outputs[i].tensor = value; }
  void setSequence(unsigned i, TensorSequence elements);
  void setEmptyOptional(unsigned i) { outputs[i].isEmptyOptional = true; }
  /// Sets output 0 to input 0, which may be a sequence.
  void passOn();
  /// Rejects if the output is used.
  void refuseOutput(unsigned i) const;
  llvm::ArrayRef<Translated> results() const { return outputs; }
  [[noreturn]] void reject(const llvm::Twine &why) const { throw Rejection{why.str()}; }

  // ---- Attributes
  bool has(llvm::StringRef name) const { return attributeOf(node, name); }
  int64_t integer(llvm::StringRef name, int64_t fallback) const;
  double real(llvm::StringRef name, double fallback) const;
  std::string text(llvm::StringRef name, llvm::StringRef fallback) const;
  Shape integers(llvm::StringRef name) const; ///< empty if absent
  const onnx::TensorProto *tensor(llvm::StringRef name) const;

  // ---- Constants
  /// The elements of a constant; null for anything else, including a broadcast of a constant.
  const Dense *constantOf(const Value *value) const;
  /// All elements of a constant or of a broadcast of one; nullopt for anything else.
  std::optional<HostTensor> knownTensor(const Value *value) const;
  /// The elements of a constant integer input. Rejects inputs that are not constant. `what` is for the message.
  Shape constantIntegers(unsigned i, llvm::StringRef what) const;
  int64_t constantInteger(unsigned i, llvm::StringRef what) const;
  double constantReal(unsigned i, llvm::StringRef what) const;
  /// Axes from attribute `name` or, in opsets that moved them there, from input `i`; empty if neither is present.
  Shape axesFrom(unsigned i, llvm::StringRef name, int64_t rank) const;
  /// The axis in [0, rank - 1]. Rejects others.
  int64_t normalAxis(int64_t axis, int64_t rank) const;

  // ---- Building. Results are folded. Errors of shape rules are rejections.
  Node *makeNode(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes = nullptr);
  Value *make(Op op, llvm::ArrayRef<Value *> operands, std::unique_ptr<AttributesBase> attributes = nullptr);
  template <class A>
  Value *make(Op op, llvm::ArrayRef<Value *> operands, A attributes) {
    return make(op, operands, std::unique_ptr<AttributesBase>(std::make_unique<Attributes<A>>(std::move(attributes))));
  }
  template <class A>
  Node *makeNode(Op op, llvm::ArrayRef<Value *> operands, A attributes) {
    return makeNode(op, operands,
                    std::unique_ptr<AttributesBase>(std::make_unique<Attributes<A>>(std::move(attributes))));
  }
  Value *constant(Type type, double splat);
  Value *constant(Type type, Dense value);
  Value *constantLike(const Value *x, double splat) { return constant(x->type(), splat); }
  Value *integerTensor(llvm::ArrayRef<int64_t> values); ///< i64[n]

  /// Operands are broadcast to one shape by numpy's rules.
  Value *binary(Op op, Value *a, Value *b);
  Value *binary(Op op, Value *a, double b) { return binary(op, a, constantLike(a, b)); }
  Value *unary(Op op, Value *x) { return make(op, {x}); }
  Value *select(Value *condition, Value *yes, Value *no);
  /// Limits x to a bound that broadcasts to it. NaN stays NaN. Where x equals the bound, the result is the bound and
  /// the derivative of x is 0, as in PyTorch's clamp, hardtanh, relu6 and hardsigmoid. max and min split a tie instead.
  Value *atLeast(Value *x, Value *bound);
  Value *atMost(Value *x, Value *bound);
  Value *cast(Value *x, DType dtype);
  Value *broadcast(Value *x, llvm::ArrayRef<int64_t> shape);
  Value *reshape(Value *x, llvm::ArrayRef<int64_t> shape);
  Value *transpose(Value *x, llvm::ArrayRef<int64_t> permutation);
  /// Moves axis `from` to position `to`. The others keep their order.
  Value *moveAxis(Value *x, int64_t from, int64_t to);
  Value *reduce(Op op, Value *x, llvm::ArrayRef<int64_t> axes, bool keepDims);
  Value *mean(Value *x, llvm::ArrayRef<int64_t> axes, bool keepDims);
  Value *slice(Value *x, int64_t axis, int64_t start, int64_t size, int64_t step = 1);
  Value *concat(llvm::ArrayRef<Value *> parts, int64_t axis);
  /// i64 of `shape` counting along an axis.
  Value *iota(llvm::ArrayRef<int64_t> shape, int64_t axis, double start = 0, double step = 1);
  /// The shape that two shapes broadcast to.
  Shape broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) const;

private:
  llvm::SmallVector<Translated, 4> inputs;
  llvm::SmallVector<Translated, 2> outputs;
};

/// matmul of operands with compatible batch dims. A transpose of the last two dims of either becomes a flag.
Value *matmulOf(NodeTranslation &t, Value *a, Value *b);
/// 0, 1, ..., rank - 1.
Shape allAxes(int64_t rank);
/// numpy's broadcast; nullopt if the shapes are incompatible.
std::optional<Shape> broadcastOf(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

} // namespace fsdpc
