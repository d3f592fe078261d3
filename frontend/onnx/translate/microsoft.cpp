// Ops of com.microsoft that ONNX Runtime's optimizer and Optimum write for simpler ones.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <cmath>

namespace fsdpc {

namespace {

/// Null for an omitted one.
Value *optionalInput(NodeTranslation &t, unsigned i) { return t.hasInput(i) ? t.input(i) : nullptr; }

Value *plus(NodeTranslation &t, Value *x, Value *addend) { return addend ? t.binary(Op::add, x, addend) : x; }

/// What the node of ai.onnx with this name makes of inputs and attributes.
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

/// Attribute `activation` of a fused product.
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

// ---------------------------------------------------------------------------------------------------- products

Value *swapped(NodeTranslation &t, Value *x) {
  Shape permutation = allAxes(x->type().rank());
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return t.transpose(x, permutation);
}

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
  Value *y = matrixProduct(t, a, b);
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

/// Rows of a table by indices [B, S].
Value *embedded(NodeTranslation &t, Value *table, Value *indices) {
  return t.make(Op::gather, {table, t.cast(indices, DType::i64)}, AxisAttributes{0});
}

void embedLayerNormalization(NodeTranslation &t) {
  Value *ids = t.input(0), *positions = optionalInput(t, 8);
  if (ids->type().rank() != 2)
    t.reject("its ids have rank " + llvm::Twine(ids->type().rank()) + " instead of 2");
  Value *byPosition = positions ? embedded(t, t.input(3), positions) : t.slice(t.input(3), 0, 0, ids->type().dim(1));
  Value *sum = t.binary(Op::add, embedded(t, t.input(2), ids), byPosition);
  if (t.hasInput(1))
    sum = t.binary(Op::add, sum, embedded(t, t.input(4), t.input(1)));
  if (t.wantsOutput(1)) // how many tokens of each sample count
    t.setOutput(1, t.hasInput(7) ? t.reduce(Op::reduceSum, t.input(7), {1}, false)
                                 : t.constant(Type(DType::i32, {ids->type().dim(0)}), 0));
  t.setOutput(0, normalised(t, sum, t.input(5), t.input(6), t.real("epsilon", 1e-12), false));
  if (t.wantsOutput(2))
    t.setOutput(2, sum);
}

// ---------------------------------------------------------------------------------------------------- attention

/// [B, S, N * D] -> [B, N, S, D]
Value *byHeads(NodeTranslation &t, Value *x, int64_t heads) {
  const Type &type = x->type();
  if (type.rank() != 3 || heads < 1 || type.dim(2) % heads != 0)
    t.reject(toString(type) + " does not divide into " + llvm::Twine(heads) + " heads");
  return t.transpose(t.reshape(x, {type.dim(0), type.dim(1), heads, type.dim(2) / heads}), {0, 2, 1, 3});
}

struct AttentionInputs {
  Value *query, *key, *value; ///< [B, N, S, D]
  Value *keyMask;             ///< [B, T]: 0 hides a key; null for none
  Value *bias;                ///< added to the scores; null for none
};

/// softmax(scale * Q K^T + masks) V as [B, S, N * D].
Value *attentionOf(NodeTranslation &t, const AttentionInputs &inputs) {
  const Type &query = inputs.query->type();
  int64_t batch = query.dim(0), heads = query.dim(1), rows = query.dim(2), columns = inputs.key->type().dim(2);
  double scale = t.real("scale", 0), filter = t.real("mask_filter_value", -10000);
  scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(query.dim(3)));
  Value *scores = t.binary(Op::mul, matrixProduct(t, inputs.query, swapped(t, inputs.key)), scale);
  if (inputs.keyMask) {
    Value *isHidden = t.binary(Op::equal, inputs.keyMask, t.constantLike(inputs.keyMask, 0));
    Value *added = t.binary(Op::mul, t.cast(isHidden, query.dtype()), filter);
    scores = t.binary(Op::add, scores, t.reshape(added, {batch, 1, 1, columns}));
  }
  scores = plus(t, scores, inputs.bias);
  if (t.integer("unidirectional", 0) != 0) {
    Value *isSeen = t.binary(Op::lessEqual, t.iota({rows, columns}, 1), t.iota({rows, columns}, 0));
    scores = t.select(isSeen, scores, t.constantLike(scores, -1e30));
  }
  Value *weights = t.make(Op::softmax, {scores}, AxisAttributes{3});
  Value *mixed = t.transpose(matrixProduct(t, weights, inputs.value), {0, 2, 1, 3});
  return t.reshape(mixed, {batch, rows, heads * inputs.value->type().dim(3)});
}

/// [B, T] from a mask of that shape or from the number of keys per sample.
Value *keyMaskOf(NodeTranslation &t, unsigned input, int64_t batch, int64_t columns) {
  if (!t.hasInput(input))
    return nullptr;
  Value *mask = t.input(input);
  bool isLength = mask->type().shape() == llvm::ArrayRef<int64_t>{batch};
  if (isLength) {
    Value *lengths = t.broadcast(t.reshape(t.cast(mask, DType::i64), {batch, 1}), {batch, columns});
    return t.cast(t.binary(Op::less, t.iota({batch, columns}, 1), lengths), DType::i32);
  }
  if (mask->type().shape() != llvm::ArrayRef<int64_t>{batch, columns})
    t.reject("a mask of " + toString(mask->type()) + " is not supported, only one of [" + llvm::Twine(batch) + "," +
             llvm::Twine(columns) + "] or [" + llvm::Twine(batch) + "]");
  return mask;
}

void refuseInputs(NodeTranslation &t, std::initializer_list<unsigned> refused) {
  for (unsigned i : refused)
    if (t.hasInput(i))
      t.reject("its input " + llvm::Twine(i) + " (of a cache) is not supported");
}

/// One product gives q, k and v.
void packedAttention(NodeTranslation &t) {
  Value *x = t.input(0), *weight = t.input(1);
  if (x->type().rank() != 3 || weight->type().rank() != 2 || t.integer("do_rotary", 0) != 0)
    t.reject("this form is not supported");
  refuseInputs(t, {4, 6});
  t.refuseOutput(1);
  Value *all = plus(t, matrixProduct(t, x, weight), optionalInput(t, 2));
  Shape sizes = t.integers("qkv_hidden_sizes");
  if (sizes.empty())
    sizes.assign(3, weight->type().dim(1) / 3);
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != weight->type().dim(1))
    t.reject("qkv_hidden_sizes do not fit the weight");
  int64_t heads = t.integer("num_heads", 0), start = 0;
  llvm::SmallVector<Value *, 3> parts;
  for (int64_t size : sizes) {
    parts.push_back(byHeads(t, t.slice(all, 2, start, size), heads));
    start += size;
  }
  Value *mask = keyMaskOf(t, 3, x->type().dim(0), x->type().dim(1));
  t.setOutput(0, attentionOf(t, {parts[0], parts[1], parts[2], mask, optionalInput(t, 5)}));
}

void multiHeadAttention(NodeTranslation &t) {
  int64_t heads = t.integer("num_heads", 0), start = 0;
  refuseInputs(t, {6, 7, 8, 9});
  for (unsigned i = 1; i <= 3; ++i)
    t.refuseOutput(i);
  llvm::SmallVector<Value *, 3> parts;
  for (unsigned i = 0; i < 3; ++i) {
    Value *x = t.input(i);
    if (x->type().rank() != 3)
      t.reject("packed or split heads are not supported");
    if (t.hasInput(3))
      x = t.binary(Op::add, x, t.slice(t.input(3), 0, start, x->type().dim(2)));
    start += x->type().dim(2);
    parts.push_back(byHeads(t, x, heads));
  }
  Value *mask = keyMaskOf(t, 4, parts[1]->type().dim(0), parts[1]->type().dim(2));
  t.setOutput(0, attentionOf(t, {parts[0], parts[1], parts[2], mask, optionalInput(t, 5)}));
}

// ---------------------------------------------------------------------------------------------------- rotary

/// Rows of an angle table for each token, as [B or 1, 1, S, D/2].
Value *anglesOf(NodeTranslation &t, Value *table, int64_t tokens) {
  Value *positions = t.input(1);
  int64_t half = table->type().dim(-1);
  if (positions->type().rank() == 2)
    return t.reshape(embedded(t, table, positions), {positions->type().dim(0), 1, tokens, half});
  int64_t first = t.constantInteger(1, "the first position");
  return t.reshape(t.slice(table, 0, first, tokens), {1, 1, tokens, half});
}

/// x [B, N, S, 2 * half] turned. Pairs are elements j and j + half, or, interleaved, 2j and 2j + 1.
Value *turned(NodeTranslation &t, Value *x, Value *cos, Value *sin, bool isInterleaved) {
  Shape shape(x->type().shape()), pairs(shape);
  int64_t half = shape[3] / 2, axis = isInterleaved ? 4 : 3;
  pairs.pop_back();
  pairs.append(isInterleaved ? Shape{half, 2} : Shape{2, half});
  Shape single(pairs), flat(shape);
  single[axis] = 1;
  flat[3] = half;
  Value *split = t.reshape(x, pairs);
  Value *a = t.reshape(t.slice(split, axis, 0, 1), flat), *b = t.reshape(t.slice(split, axis, 1, 1), flat);
  Value *low = t.binary(Op::sub, t.binary(Op::mul, a, cos), t.binary(Op::mul, b, sin));
  Value *high = t.binary(Op::add, t.binary(Op::mul, b, cos), t.binary(Op::mul, a, sin));
  return t.reshape(t.concat({t.reshape(low, single), t.reshape(high, single)}, axis), shape);
}

void rotaryEmbedding(NodeTranslation &t) {
  Value *x = t.input(0), *cos = t.input(2), *sin = t.input(3);
  int64_t heads = t.integer("num_heads", 0), rank = x->type().rank();
  if (cos->type().rank() != 2 || cos->type() != sin->type() || t.integer("is_packed_batching", 0) != 0)
    t.reject("this form is not supported");
  int64_t width = 2 * cos->type().dim(1);
  if (rank == 3 && heads == 0)
    heads = width > 0 ? x->type().dim(2) / width : 0;
  Value *all = rank == 4 ? x : byHeads(t, x, heads);
  const Type &type = all->type();
  if (width < 1 || width > type.dim(3))
    t.reject("its tables of " + toString(cos->type()) + " do not fit " + toString(type));
  Value *y = turned(t, t.slice(all, 3, 0, width), anglesOf(t, cos, type.dim(2)), anglesOf(t, sin, type.dim(2)),
                    t.integer("interleaved", 0) != 0);
  if (width < type.dim(3))
    y = t.concat({y, t.slice(all, 3, width, type.dim(3) - width)}, 3);
  t.setOutput(0, rank == 4 ? y : t.reshape(t.transpose(y, {0, 2, 1, 3}), x->type().shape()));
}

constexpr TranslationRow rows[] = {
    {"Attention", packedAttention},
    {"BiasGelu", biasGelu},
    {"BiasSoftmax", biasSoftmax},
    {"EmbedLayerNormalization", embedLayerNormalization},
    {"FastGelu", fastGelu},
    {"FusedConv", fusedConv},
    {"FusedGemm", fusedGemm},
    {"FusedMatMul", fusedMatMul},
    {"Gelu", biasGelu},
    {"MultiHeadAttention", multiHeadAttention},
    {"QuickGelu", quickGelu},
    {"RotaryEmbedding", rotaryEmbedding},
    {"SimplifiedLayerNormalization", simplifiedLayerNormalization},
    {"SkipLayerNormalization", skipLayerNormalization<false>},
    {"SkipSimplifiedLayerNormalization", skipLayerNormalization<true>},
};

} // namespace

TranslationRows microsoftTranslations() { return rows; }

} // namespace fsdpc
