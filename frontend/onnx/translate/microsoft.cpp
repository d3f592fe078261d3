// Ops of com.microsoft that ONNX Runtime's optimizer and Optimum write in place of simpler ones.
#include "frontend/onnx/translate/microsoft.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

Value *optionalInput(NodeTranslation &t, unsigned i) { return t.hasInput(i) ? t.input(i) : nullptr; }

Value *plus(NodeTranslation &t, Value *x, Value *addend) { return addend ? t.binary(Op::add, x, addend) : x; }

Value *swapped(NodeTranslation &t, Value *x) {
  Shape permutation = allAxes(x->type().rank());
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return t.transpose(x, permutation);
}

Value *embedded(NodeTranslation &t, Value *table, Value *indices) {
  return t.make(Op::gather, {table, t.cast(indices, DType::i64)}, AxisAttributes{0});
}

namespace {

/// The translation of the ai.onnx node `op` with these inputs and attributes.
Value *asPlain(NodeTranslation &t, llvm::StringRef op) {
  findTranslation("", op, t.state.model.opset(""))(t);
  return t.results()[0].tensor;
}

// ---------------------------------------------------------------------------------------------------- activations

void biasGelu(NodeTranslation &t) { t.setOutput(0, t.unary(Op::gelu, plus(t, t.input(0), optionalInput(t, 1)))); }
void fastGelu(NodeTranslation &t) { t.setOutput(0, t.unary(Op::geluTanh, plus(t, t.input(0), optionalInput(t, 1)))); }

void quickGelu(NodeTranslation &t) {
  Value *x = t.input(0);
  t.setOutput(0, t.binary(Op::mul, x, t.unary(Op::sigmoid, t.binary(Op::mul, x, t.real("alpha", 1.702)))));
}

void biasSoftmax(NodeTranslation &t) {
  Value *x = t.input(0), *bias = t.input(1);
  int64_t rank = x->type().rank(), axis = t.normalAxis(t.integer("axis", 1), rank);
  bool fits = broadcastOf(x->type().shape(), bias->type().shape()) == Shape(x->type().shape());
  if (axis != rank - 1 || !fits)
    t.reject("only a softmax of the last axis, with a bias that broadcasts to it, is supported");
  t.setOutput(0, t.make(Op::softmax, {t.binary(Op::add, x, bias)}, AxisAttributes{axis}));
}

/// Applies the attribute `activation` of a fused matmul or convolution.
Value *activated(NodeTranslation &t, Value *x) {
  std::string name = t.text("activation", "");
  if (name.empty())
    return x;
  if (name == "Relu" || name == "Tanh" || name == "Sigmoid")
    return t.unary(name == "Relu" ? Op::relu : name == "Tanh" ? Op::tanh : Op::sigmoid, x);
  if (name == "LeakyRelu") {
    // FusedConv has its parameters in a list, FusedGemm by name.
    const onnx::AttributeProto *list = attributeOf(t.node, "activation_params");
    double alpha = list && list->floats_size() ? list->floats(0) : t.real("activation_alpha", 0.01);
    Value *small = t.binary(Op::mul, x, alpha);
    return t.select(t.binary(Op::less, x, 0.0), small, x);
  }
  t.reject("the activation '" + name + "' is not supported");
}

// ---------------------------------------------------------------------------------------------------- matmuls

void fusedMatMul(NodeTranslation &t) {
  Value *a = t.input(0), *b = t.input(1);
  if (t.integer("transBatchA", 0) || t.integer("transBatchB", 0) || a->type().rank() < 2 || b->type().rank() < 2)
    t.reject("transposed batches, and operands of rank 1, are not supported");
  a = t.integer("transA", 0) ? swapped(t, a) : a;
  b = t.integer("transB", 0) ? swapped(t, b) : b;
  llvm::ArrayRef<int64_t> batchA = a->type().shape().drop_back(2), batchB = b->type().shape().drop_back(2);
  if (!batchA.empty() && !batchB.empty()) {
    Shape batch = t.broadcastShape(batchA, batchB), shapeA = batch, shapeB = batch;
    shapeA.append({a->type().dim(-2), a->type().dim(-1)});
    shapeB.append({b->type().dim(-2), b->type().dim(-1)});
    a = t.broadcast(a, shapeA);
    b = t.broadcast(b, shapeB);
  }
  Value *y = matmulOf(t, a, b);
  double alpha = t.real("alpha", 1);
  t.setOutput(0, alpha == 1 ? y : t.binary(Op::mul, y, alpha));
}

void fusedGemm(NodeTranslation &t) { t.setOutput(0, activated(t, asPlain(t, "Gemm"))); }
void fusedConv(NodeTranslation &t) { t.setOutput(0, activated(t, plus(t, asPlain(t, "Conv"), optionalInput(t, 3)))); }

// ---------------------------------------------------------------------------------------------------- norms

/// Over the last axis. beta: null for none. An RMS norm if `isSimple`.
Value *normalised(NodeTranslation &t, Value *x, Value *gamma, Value *beta, double epsilon, bool isSimple) {
  NormAttributes attributes{x->type().rank() - 1, epsilon};
  if (isSimple)
    return t.makeNode(Op::rmsNorm, {x, gamma}, attributes)->result(0);
  beta = beta ? beta : t.constantLike(gamma, 0);
  return t.makeNode(Op::layerNorm, {x, gamma, beta}, attributes)->result(0);
}

void simplifiedLayerNormalization(NodeTranslation &t) {
  Value *x = t.input(0);
  if (t.normalAxis(t.integer("axis", -1), x->type().rank()) != x->type().rank() - 1)
    t.reject("only the last axis is supported");
  t.refuseOutput(1);
  t.setOutput(0, normalised(t, x, t.input(1), nullptr, t.real("epsilon", 1e-5), true));
}

/// norm(x + skip + bias); the sum is output 3.
template <bool isSimple>
void skipLayerNormalization(NodeTranslation &t) {
  Value *beta = isSimple ? nullptr : optionalInput(t, 3), *bias = optionalInput(t, isSimple ? 3 : 4);
  Value *sum = plus(t, t.binary(Op::add, t.input(0), t.input(1)), bias);
  t.refuseOutput(1);
  t.refuseOutput(2);
  t.setOutput(0, normalised(t, sum, t.input(2), beta, t.real("epsilon", 1e-12), isSimple));
  if (t.wantsOutput(3))
    t.setOutput(3, sum);
}

void embedLayerNormalization(NodeTranslation &t) {
  Value *ids = t.input(0), *positions = optionalInput(t, 8);
  if (ids->type().rank() != 2)
    t.reject("its ids have rank " + llvm::Twine(ids->type().rank()) + " instead of 2");
  Value *byPosition = positions ? embedded(t, t.input(3), positions) : t.slice(t.input(3), 0, 0, ids->type().dim(1));
  Value *sum = t.binary(Op::add, embedded(t, t.input(2), ids), byPosition);
  if (t.hasInput(1))
    sum = t.binary(Op::add, sum, embedded(t, t.input(4), t.input(1)));
  if (t.wantsOutput(1)) // the number of valid tokens of each sample
    t.setOutput(1, t.hasInput(7) ? t.reduce(Op::reduceSum, t.input(7), {1}, false)
                                 : t.constant(Type(DType::i32, {ids->type().dim(0)}), 0));
  t.setOutput(0, normalised(t, sum, t.input(5), t.input(6), t.real("epsilon", 1e-12), false));
  if (t.wantsOutput(2))
    t.setOutput(2, sum);
}

constexpr TranslationRow rows[] = {
    {"BiasGelu", biasGelu},
    {"BiasSoftmax", biasSoftmax},
    {"EmbedLayerNormalization", embedLayerNormalization},
    {"FastGelu", fastGelu},
    {"FusedConv", fusedConv},
    {"FusedGemm", fusedGemm},
    {"FusedMatMul", fusedMatMul},
    {"Gelu", biasGelu},
    {"QuickGelu", quickGelu},
    {"SimplifiedLayerNormalization", simplifiedLayerNormalization},
    {"SkipLayerNormalization", skipLayerNormalization<false>},
    {"SkipSimplifiedLayerNormalization", skipLayerNormalization<true>},
};

} // namespace

TranslationRows microsoftTranslations() { return rows; }

} // namespace fsdpc
