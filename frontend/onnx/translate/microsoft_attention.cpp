// Attention and rotary embeddings of com.microsoft, which ONNX Runtime's optimizer and Optimum write in place of plain
// ops.
#include "frontend/onnx/translate/microsoft.h"
#include "frontend/onnx/translate/table.h"
#include <cmath>

namespace fsdpc {

namespace {

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
  Value *keyMask = nullptr;   ///< [B, T]: 0 hides a key; null for none
  Value *bias = nullptr;      ///< added to the scores; null for none
  bool isCausal = false;
  int64_t window = 0; ///< if causal: number of keys that a query sees, itself included; 0 for all before it
  double softcap = 0; ///< scores are softcap * tanh(scores / softcap); 0: unchanged
};

/// The keys that each causal query sees: [rows, columns].
Value *seenKeys(NodeTranslation &t, int64_t rows, int64_t columns, int64_t window) {
  Value *row = t.iota({rows, columns}, 0), *column = t.iota({rows, columns}, 1);
  Value *isSeen = t.binary(Op::lessEqual, column, row);
  if (window == 0)
    return isSeen;
  Value *isNear = t.binary(Op::less, row, t.binary(Op::add, column, static_cast<double>(window)));
  return t.binary(Op::logicalAnd, isSeen, isNear);
}

/// softmax(scale * Q K^T + masks) V as [B, S, N * D].
Value *attentionOf(NodeTranslation &t, const AttentionInputs &inputs) {
  const Type &query = inputs.query->type();
  int64_t batch = query.dim(0), heads = query.dim(1), rows = query.dim(2), columns = inputs.key->type().dim(2);
  double scale = t.real("scale", 0), filter = t.real("mask_filter_value", -10000);
  scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(query.dim(3)));
  Value *scores = t.binary(Op::mul, matmulOf(t, inputs.query, swapped(t, inputs.key)), scale);
  if (inputs.softcap != 0)
    scores = t.binary(Op::mul, t.unary(Op::tanh, t.binary(Op::mul, scores, 1 / inputs.softcap)), inputs.softcap);
  if (inputs.keyMask) {
    Value *isHidden = t.binary(Op::equal, inputs.keyMask, t.constantLike(inputs.keyMask, 0));
    Value *added = t.binary(Op::mul, t.cast(isHidden, query.dtype()), filter);
    scores = t.binary(Op::add, scores, t.reshape(added, {batch, 1, 1, columns}));
  }
  scores = plus(t, scores, inputs.bias);
  if (inputs.isCausal)
    scores = t.select(seenKeys(t, rows, columns, inputs.window), scores, t.constantLike(scores, -1e30));
  Value *weights = t.make(Op::softmax, {scores}, AxisAttributes{3});
  Value *mixed = t.transpose(matmulOf(t, weights, inputs.value), {0, 2, 1, 3});
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

/// One matmul computes q, k and v.
void packedAttention(NodeTranslation &t) {
  Value *x = t.input(0), *weight = t.input(1);
  if (x->type().rank() != 3 || weight->type().rank() != 2 || t.integer("do_rotary", 0) != 0)
    t.reject("this form is not supported");
  refuseInputs(t, {4, 6});
  t.refuseOutput(1);
  Value *all = plus(t, matmulOf(t, x, weight), optionalInput(t, 2));
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
  const bool isCausal = t.integer("unidirectional", 0) != 0;
  t.setOutput(0, attentionOf(t, {parts[0], parts[1], parts[2], mask, optionalInput(t, 5), isCausal}));
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
  const bool isCausal = t.integer("unidirectional", 0) != 0;
  t.setOutput(0, attentionOf(t, {parts[0], parts[1], parts[2], mask, optionalInput(t, 5), isCausal}));
}

// ---------------------------------------------------------------------------------------------------- rotary

/// Rows of an angle table for each token, as [B or 1, 1, S, D/2]. `positions` [B, S]; if null, positions count from
/// `first`.
Value *anglesOf(NodeTranslation &t, Value *table, Value *positions, int64_t first, int64_t tokens) {
  int64_t half = table->type().dim(-1);
  if (positions)
    return t.reshape(embedded(t, table, positions), {positions->type().dim(0), 1, tokens, half});
  return t.reshape(t.slice(table, 0, first, tokens), {1, 1, tokens, half});
}

/// x [B, N, S, 2 * half] rotated. Pairs are elements j and j + half, or, if interleaved, 2j and 2j + 1.
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

/// Rotates the first elements of every head of x [B, N, S, D], as many as the tables have angles for.
Value *rotated(NodeTranslation &t, Value *x, Value *cos, Value *sin, Value *positions, int64_t first,
               bool isInterleaved) {
  const Type &type = x->type();
  if (cos->type().rank() != 2 || cos->type() != sin->type())
    t.reject("tables of " + toString(cos->type()) + " and " + toString(sin->type()) + " are not supported");
  int64_t width = 2 * cos->type().dim(1);
  if (width < 1 || width > type.dim(3))
    t.reject("its tables of " + toString(cos->type()) + " do not fit " + toString(type));
  Value *angles[] = {anglesOf(t, cos, positions, first, type.dim(2)), anglesOf(t, sin, positions, first, type.dim(2))};
  Value *y = turned(t, t.slice(x, 3, 0, width), angles[0], angles[1], isInterleaved);
  return width == type.dim(3) ? y : t.concat({y, t.slice(x, 3, width, type.dim(3) - width)}, 3);
}

void rotaryEmbedding(NodeTranslation &t) {
  Value *x = t.input(0), *positions = t.input(1), *cos = t.input(2);
  int64_t heads = t.integer("num_heads", 0), rank = x->type().rank(), first = 0;
  if (cos->type().rank() != 2 || t.integer("is_packed_batching", 0) != 0)
    t.reject("this form is not supported");
  if (rank == 3 && heads == 0)
    heads = cos->type().dim(1) > 0 ? x->type().dim(2) / (2 * cos->type().dim(1)) : 0;
  if (positions->type().rank() != 2) {
    first = t.constantInteger(1, "the first position");
    positions = nullptr;
  }
  Value *y = rotated(t, rank == 4 ? x : byHeads(t, x, heads), cos, t.input(3), positions, first,
                     t.integer("interleaved", 0) != 0);
  t.setOutput(0, rank == 4 ? y : t.reshape(t.transpose(y, {0, 2, 1, 3}), x->type().shape()));
}

// ---------------------------------------------------------------------------------------------------- grouped heads

/// Queries, keys and values by heads, from three inputs or packed in the first one.
llvm::SmallVector<Value *, 3> groupedParts(NodeTranslation &t, int64_t heads, int64_t keyHeads) {
  if (heads < 1 || keyHeads < 1 || heads % keyHeads != 0)
    t.reject("num_heads " + llvm::Twine(heads) + " is no multiple of kv_num_heads " + llvm::Twine(keyHeads));
  const int64_t counts[] = {heads, keyHeads, keyHeads};
  llvm::SmallVector<Value *, 3> parts;
  if (t.hasInput(1)) {
    for (unsigned i = 0; i < 3; ++i)
      parts.push_back(byHeads(t, t.input(i), counts[i]));
  } else {
    Value *all = byHeads(t, t.input(0), heads + 2 * keyHeads);
    for (int64_t start = 0; int64_t count : counts) {
      parts.push_back(t.slice(all, 1, start, count));
      start += count;
    }
  }
  if (parts[0]->type().dim(3) != parts[1]->type().dim(3) || parts[0]->type().dim(2) != parts[1]->type().dim(2))
    t.reject("queries " + toString(parts[0]->type()) + " do not fit keys " + toString(parts[1]->type()));
  return parts;
}

/// [B, K, S, D] -> [B, N, S, D]: repeats each head N / K times, next to each other.
Value *repeatedHeads(NodeTranslation &t, Value *x, int64_t heads) {
  const Type type = x->type();
  const int64_t batch = type.dim(0), own = type.dim(1), rows = type.dim(2), width = type.dim(3);
  Value *wide = t.broadcast(t.reshape(x, {batch, own, 1, rows, width}), {batch, own, heads / own, rows, width});
  return t.reshape(wide, {batch, heads, rows, width});
}

/// Rejects a cache, unless it has no rows. Padding keys need no mask: they are after every query that is not padding.
void checkNoCache(NodeTranslation &t, int64_t rows) {
  for (unsigned i : {3U, 4U})
    if (t.hasInput(i) && (t.input(i)->type().rank() != 4 || t.input(i)->type().dim(2) != 0))
      t.reject("its input " + llvm::Twine(i) + " (of a cache) is not supported; export without past keys and values");
  std::optional<HostTensor> total = t.hasInput(6) ? t.knownTensor(t.input(6)) : std::nullopt;
  if (total && (total->values.size() != 1 || total->values[0] != static_cast<double>(rows)))
    t.reject("its keys are not those of its " + llvm::Twine(rows) + " queries: total_sequence_length says otherwise");
}

/// Causal. The order is that of ONNX Runtime's CPU kernel: scale, softcap, bias, mask, softmax.
void groupQueryAttention(NodeTranslation &t) {
  if (t.hasInput(11) || t.integer("smooth_softmax", 0) > 0)
    t.reject("head sinks and smooth_softmax are not supported");
  if (t.integer("kv_cache_bit_width", 0) != 0)
    t.reject("quantized keys and values do not train");
  t.refuseOutput(3);
  const int64_t heads = t.integer("num_heads", 0), window = t.integer("local_window_size", -1);
  if (window == 0)
    t.reject("local_window_size 0 leaves no key");
  llvm::SmallVector<Value *, 3> parts = groupedParts(t, heads, t.integer("kv_num_heads", 0));
  checkNoCache(t, parts[0]->type().dim(2));
  if (t.integer("do_rotary", 0) != 0)
    for (Value *&part : llvm::MutableArrayRef(parts).take_front(2))
      part = rotated(t, part, t.input(7), t.input(8), optionalInput(t, 9), 0, t.integer("rotary_interleaved", 0) != 0);
  for (unsigned i : {1U, 2U})
    if (t.wantsOutput(i))
      t.setOutput(i, parts[i]);
  t.setOutput(0, attentionOf(t, {.query = parts[0],
                                 .key = repeatedHeads(t, parts[1], heads),
                                 .value = repeatedHeads(t, parts[2], heads),
                                 .bias = optionalInput(t, 10),
                                 .isCausal = true,
                                 .window = std::max<int64_t>(window, 0),
                                 .softcap = t.real("softcap", 0)}));
}

constexpr TranslationRow rows[] = {
    {"Attention", packedAttention},
    {"GroupQueryAttention", groupQueryAttention},
    {"MultiHeadAttention", multiHeadAttention},
    {"RotaryEmbedding", rotaryEmbedding},
};

} // namespace

TranslationRows microsoftAttentionTranslations() { return rows; }

} // namespace fsdpc
