// Tools for the productions of the generator: tensors that know their sample axis and how large their values get, and
// helpers that every production needs (parameters, constants, operands of a wanted shape).
#pragma once

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "tests/random/random_numbers.h"

namespace fsdpc {

/// A value and its properties that later productions need.
struct Tensor {
  Value *value = nullptr;
  int64_t batch = -1; ///< the axis of the samples, whose dim is a multiple of the batch, samples first; -1: none
  double scale = 1;   ///< estimate of the largest |element|, to keep values small; not a bound
  /// Floats that are exact in any arithmetic: inputs, parameters and values that only move or compare them. Only these
  /// may be operands of decisions (floor, less, arg_max), else rounding would decide.
  bool exact = false;
  int64_t limit = 0; ///< integers: elements are in [0, limit)

  const Type &type() const { return value->type(); }
  llvm::ArrayRef<int64_t> shape() const { return value->type().shape(); }
  int64_t rank() const { return value->type().rank(); }
};

/// Names of values state the sample axis, so that any graph, reduced or not, can be rebuilt for another batch size
/// (rebatched.h): "v17.b1" has its samples on axis 1.
std::string tensorName(int64_t number, int64_t batchAxis);
std::optional<int64_t> batchAxisOfName(llvm::StringRef name);

struct GraphOptions {
  int64_t batch = 2;
  bool emittable = false;    ///< only ops of the cpu target: no arithmetic on 16-bit floats
  bool samplesApart = false; ///< no value depends on several samples: no statistics of the batch
};

class GraphMaker {
public:
  GraphMaker(Module &module, const GraphOptions &options, Random &random);

  // ---- nodes

  /// Properties of a node's result: its sample axis, how large it gets.
  struct Traits {
    int64_t batch = -1;
    double scale = 1;
    bool exact = false;
    int64_t limit = 0;
  };
  static Traits traitsOf(const Tensor &x) { return {x.batch, x.scale, x.exact, x.limit}; }

  template <class A>
  Tensor make(Op op, llvm::ArrayRef<Tensor> operands, A attributes, const Traits &traits) {
    return wrap(builder.create(op, valuesOf(operands), std::move(attributes)), traits);
  }
  Tensor make(Op op, llvm::ArrayRef<Tensor> operands, const Traits &traits) {
    return wrap(builder.create(op, valuesOf(operands)), traits);
  }
  /// Returns nothing if the op's shape rule rejects the operands. For randomly chosen shapes.
  template <class A>
  std::optional<Tensor> tryMake(Op op, llvm::ArrayRef<Tensor> operands, A attributes, const Traits &traits) {
    llvm::Expected<Node *> node =
        builder.tryCreate(op, valuesOf(operands), std::make_unique<Attributes<A>>(std::move(attributes)));
    if (!node) {
      llvm::consumeError(node.takeError());
      return std::nullopt;
    }
    return wrap(*node, traits);
  }

  // ---- sources

  /// A parameter of this shape: a new or an existing one. Sometimes frozen.
  Tensor parameter(llvm::ArrayRef<int64_t> shape);
  Tensor newParameter(llvm::ArrayRef<int64_t> shape, bool trainable);
  /// Running statistics of a norm, a vector of positive values.
  Tensor buffer(int64_t channels);
  Tensor input(const std::string &name, DType dtype, llvm::ArrayRef<int64_t> sampleShape, int64_t limit = 0);
  Tensor constant(DType dtype, llvm::ArrayRef<int64_t> shape, double splat);
  /// Without samples; elements are exact multiples of 1/64 in [low, high].
  Tensor constants(DType dtype, llvm::ArrayRef<int64_t> shape, double low, double high);
  /// seed and step, which random numbers are keyed by.
  Tensor scalarState(llvm::StringRef name);

  // ---- operands from existing values

  Tensor anyFloat();
  Tensor batchedFloat();
  Tensor exactFloat();
  Tensor anyInteger();
  /// Elements in [0, limit).
  Tensor integerBelow(int64_t limit);
  /// Numbers of documents [samples or 1, length] for attention: of samples, or the same for all.
  Tensor documents(int64_t length);
  void keep(Tensor tensor); ///< later productions may use it

  // ---- shapes

  /// Whether dim `axis` is the sample axis. Its size is not part of the graph, so productions must not depend on it.
  bool isBatch(const Tensor &x, int64_t axis) const { return x.batch == axis; }
  llvm::SmallVector<int64_t, 4> freeAxes(const Tensor &x) const; ///< axes that are not the batch
  Tensor reshape(const Tensor &x, llvm::ArrayRef<int64_t> shape, int64_t batch);
  Tensor transpose(const Tensor &x, llvm::ArrayRef<int64_t> permutation);
  Tensor broadcast(const Tensor &x, llvm::ArrayRef<int64_t> shape, int64_t batch);
  Tensor cast(const Tensor &x, DType dtype);
  /// x with `sampleShape` per sample, samples first: elements are dropped, repeated or mixed as needed. Without
  /// samples, x is the same for all of them. `mix`: a matmul with a parameter may do it.
  Tensor perSample(const Tensor &x, llvm::ArrayRef<int64_t> sampleShape, bool mix = true);
  /// x, or something else, in the shape and with the samples of `target`.
  Tensor like(const Tensor &x, const Tensor &target, bool mix = true);
  /// A second operand for an elementwise op with `target`: something computed, a parameter or a constant.
  Tensor partnerOf(const Tensor &target, bool exact = false);
  Shape smallShape(int64_t rank, int64_t maxElements = 60);
  int64_t smallDim() { return random->pick({1, 2, 3, 3, 4, 5, 5, 7}); }

  // ---- numbers

  Tensor times(const Tensor &x, double factor);
  Tensor plus(const Tensor &x, double number);
  Tensor binary(Op op, const Tensor &a, const Tensor &b, double scale);
  Tensor unary(Op op, const Tensor &x, double scale);
  /// x, scaled down by a power of two if it is larger than that.
  Tensor scaledTo(const Tensor &x, double scale);
  Tensor positive(const Tensor &x); ///< above 0.25, of x's shape
  /// x with elements that differ, so that rounding does not decide which is largest; exact tensors as they are.
  Tensor withoutTies(const Tensor &x);

  Module &module;
  Function &function;
  Builder builder;
  const GraphOptions options;
  Random *random;
  int64_t dropouts = 0;
  /// Whether all norms of the graph are synced, as --sync_batch_norm specifies.
  const bool syncedNorms;

  std::vector<Tensor> floats, integers; ///< values that productions may use

  /// Parameters made from now on belong to another block; each is shared within its block only.
  void beginBlock(const std::string &name) {
    prefix = name;
    parametersOfBlock.clear();
    parameters = 0;
  }

private:
  Tensor wrap(Node *node, const Traits &traits);
  static llvm::SmallVector<Value *, 4> valuesOf(llvm::ArrayRef<Tensor> tensors);
  Tensor read(const std::string &parameter);
  Tensor resized(const Tensor &rows, int64_t columns, bool mix);
  Tensor rowsOf(const Tensor &x);
  Tensor grown(const Tensor &rows, int64_t columns);

  int64_t values = 0;
  int64_t parameters = 0;
  std::string prefix; ///< of parameter names: the block
  std::vector<std::string> parametersOfBlock;
};

} // namespace fsdpc
