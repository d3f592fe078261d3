// Patterns of Llama and its relatives in the forms that exporters write: grouped queries, rotary embedding, SiLU.
#include "tests/unit/graph_under_test.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {
namespace {

constexpr int64_t batch = 2, heads = 6, keyHeads = 2, length = 4, width = 8;

// ---- grouped queries

enum class Repeat {
  heads,         ///< HF repeat_kv: [B,H,S,D] -> unsqueeze, expand, reshape
  beforeHeads,   ///< Llama's own: the same on [B,S,H,D], transposed afterwards
  merged,        ///< the reshape joins batch and heads too
  wholeSequence, ///< in the wrong order: head h of q reads head h % keyHeads
};

Value *repeat(Graph &g, Value *x, int64_t axis, Repeat form) {
  Builder &b = g.b;
  Shape shape(x->type().shape());
  int64_t added = form == Repeat::wholeSequence ? axis : axis + 1;
  shape.insert(shape.begin() + added, 1);
  Value *apart = b.reshape(x, shape);
  shape[added] = heads / keyHeads;
  Value *copies = b.broadcast(apart, shape);
  Shape joined(x->type().shape());
  joined[axis] = heads;
  if (form != Repeat::merged)
    return b.reshape(copies, joined);
  return b.reshape(b.reshape(copies, {batch * heads, length, width}), joined);
}

Value *keysOf(Graph &g, const char *name, Repeat form) {
  Value *x = g.input(name, {batch, length, keyHeads, width});
  if (form == Repeat::beforeHeads)
    return g.b.transpose(repeat(g, x, 2, form), {0, 2, 1, 3});
  return repeat(g, g.b.transpose(x, {0, 2, 1, 3}), 1, form);
}

Value *attend(Graph &g, Value *q, Value *k, Value *v, bool swapsKeys) {
  Builder &b = g.b;
  Value *scores = swapsKeys ? b.matmul(q, b.swapLastTwo(k)) : b.matmul(q, k, false, true);
  scores = b.mul(scores, g.number(scores, 0.4));
  Value *p = b.create(Op::softmax, {scores}, AxisAttributes{3})->result();
  return b.reshape(b.transpose(b.matmul(p, v), {0, 2, 1, 3}), {batch, length, heads * width});
}

TEST(RecognizeGroupedQueries, KeysAreReadWhereTheyWereBeforeTheyWereRepeated) {
  for (Repeat form : {Repeat::heads, Repeat::beforeHeads, Repeat::merged})
    for (bool swapsKeys : {false, true}) {
      Graph g;
      Value *q = g.b.transpose(g.input("q", {batch, length, heads, width}), {0, 2, 1, 3});
      g.result(attend(g, q, keysOf(g, "k", form), keysOf(g, "v", form), swapsKeys));
      g.recognize();
      Node *attention = g.only(Op::attention);
      ASSERT_TRUE(attention);
      EXPECT_TRUE(attention->get<AttentionAttributes>().sequenceFirst) << toText(g.module);
      EXPECT_EQ(attention->operand(1)->type().shape(), llvm::ArrayRef<int64_t>({batch, length, keyHeads, width}));
      EXPECT_EQ(g.count(Op::broadcast) + g.count(Op::transpose), 0) << toText(g.module);
    }
}

TEST(RecognizeGroupedQueries, OneHeadOfKeysForAllQueries) {
  Graph g;
  auto keys = [&](const char *name) {
    return g.b.broadcast(g.input(name, {batch, 1, length, width}), {batch, heads, length, width});
  };
  Value *q = g.input("q", {batch, heads, length, width}), *k = keys("k"), *v = keys("v");
  g.result(attend(g, q, k, v, true));
  g.recognize();
  EXPECT_EQ(g.only(Op::attention)->operand(1)->type().dim(1), 1);
  EXPECT_EQ(g.count(Op::broadcast), 0) << toText(g.module);
}

TEST(RecognizeGroupedQueries, OtherRepetitionsStay) {
  for (bool isOfValuesOnly : {false, true}) {
    Graph g;
    Value *q = g.input("q", {batch, heads, length, width});
    Value *k = isOfValuesOnly ? g.input("k", {batch, heads, length, width}) : keysOf(g, "k", Repeat::wholeSequence);
    g.result(attend(g, q, k, keysOf(g, "v", isOfValuesOnly ? Repeat::heads : Repeat::wholeSequence), false));
    g.recognize();
    EXPECT_EQ(g.only(Op::attention)->operand(1)->type().dim(1), heads);
  }
}

// ---- rotary embedding

Value *slice(Graph &g, Value *x, int64_t start, int64_t size) {
  SliceAttributes attributes{Shape(x->type().rank(), 0), Shape(x->type().shape()), Shape(x->type().rank(), 1)};
  attributes.starts.back() = start;
  attributes.sizes.back() = size;
  return g.b.create(Op::slice, {x}, attributes)->result();
}

Value *joined(Graph &g, Value *first, Value *second) {
  return g.b.create(Op::concat, {first, second}, AxisAttributes{first->type().rank() - 1})->result();
}

/// A graph input [1, 1, S, D], broadcast to the shape of x.
Value *table(Graph &g, const char *name, Value *x) {
  return g.b.broadcast(g.input(name, {1, 1, length, x->type().dim(-1)}), x->type().shape());
}

struct RotaryForm {
  bool termsSwapped = false, factorsSwapped = false, negatesByFactor = false;
};

Value *rotated(Graph &g, Value *x, Value *cos, Value *sin, const RotaryForm &form = {}) {
  Builder &b = g.b;
  int64_t half = x->type().dim(-1) / 2;
  Value *second = slice(g, x, half, half);
  Value *negated = form.negatesByFactor ? b.mul(second, g.number(second, -1)) : b.unary(Op::neg, second);
  Value *turned = joined(g, negated, slice(g, x, 0, half));
  Value *plain = form.factorsSwapped ? b.mul(cos, x) : b.mul(x, cos);
  turned = form.factorsSwapped ? b.mul(sin, turned) : b.mul(turned, sin);
  return form.termsSwapped ? b.add(turned, plain) : b.add(plain, turned);
}

TEST(RecognizeRotary, EveryOrderOfFactorsAndTerms) {
  for (int bits = 0; bits < 8; ++bits) {
    Graph g;
    Value *x = g.input("x", {batch, heads, length, width});
    Value *cos = table(g, "cos", x), *sin = table(g, "sin", x);
    g.result(rotated(g, x, cos, sin, {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0}));
    g.recognize();
    Node *rotary = g.only(Op::rotary);
    ASSERT_TRUE(rotary);
    EXPECT_EQ(rotary->operand(1)->type().shape(), llvm::ArrayRef<int64_t>({1, 1, length, width}));
    EXPECT_EQ(g.count(Op::concat) + g.count(Op::slice) + g.count(Op::mul) + g.count(Op::broadcast), 0);
  }
}

TEST(RecognizeRotary, PartOfAVectorInAnyLayout) {
  for (bool transposed : {false, true}) {
    Graph g;
    Value *x = transposed ? g.b.transpose(g.input("x", {batch, length, heads, width}), {0, 2, 1, 3})
                          : g.input("x", {batch, heads, length, width});
    Value *part = slice(g, x, 2, 4), *cos = table(g, "cos", part), *sin = table(g, "sin", part);
    g.result(joined(g, joined(g, slice(g, x, 0, 2), rotated(g, part, cos, sin)), slice(g, x, 6, 2)));
    g.recognize();
    g.only(Op::rotary);
  }
}

TEST(RecognizeRotary, OfHalvesAsOnnxDefinesRotaryEmbedding) {
  for (bool isPart : {false, true})
    for (bool swapped : {false, true}) {
      Graph g;
      Builder &b = g.b;
      Value *x = b.transpose(g.input("x", {batch, length, heads, width}), {0, 2, 1, 3});
      int64_t start = isPart ? 2 : 0, half = isPart ? 2 : 4;
      Value *first = slice(g, x, start, half), *second = slice(g, x, start + half, half);
      Value *cos = table(g, "cos", first), *sin = table(g, "sin", first);
      auto product = [&](Value *part, Value *by) { return swapped ? b.mul(by, part) : b.mul(part, by); };
      Value *low = b.sub(product(first, cos), product(second, sin));
      Value *high =
          swapped ? b.add(product(first, sin), product(second, cos)) : b.add(product(second, cos), product(first, sin));
      g.result(joined(g, joined(g, low, high), slice(g, x, 6, 2)));
      g.recognize();
      g.only(Op::rotary);
      EXPECT_EQ(g.count(Op::mul), 0) << toText(g.module);
    }
}

TEST(RecognizeRotary, AttentionAbsorbsTheTransposesBehindIt) {
  Graph g;
  auto head = [&](const char *name, int64_t count) {
    return g.b.transpose(g.input(name, {batch, length, count, width}), {0, 2, 1, 3});
  };
  Value *q = head("q", heads), *k = head("k", keyHeads), *v = repeat(g, head("v", keyHeads), 1, Repeat::heads);
  Value *cos = g.input("cos", {1, 1, length, width}), *sin = g.input("sin", {1, 1, length, width});
  auto turn = [&](Value *x) {
    return rotated(g, x, g.b.broadcast(cos, x->type().shape()), g.b.broadcast(sin, x->type().shape()));
  };
  g.result(attend(g, turn(q), repeat(g, turn(k), 1, Repeat::heads), v, true));
  g.recognize();
  EXPECT_TRUE(g.only(Op::attention)->get<AttentionAttributes>().sequenceFirst);
  EXPECT_EQ(g.count(Op::rotary), 2);
  EXPECT_EQ(g.count(Op::transpose) + g.count(Op::broadcast) + g.count(Op::mul), 0) << toText(g.module);
}

TEST(RecognizeRotary, AnglesThatAreTrainedKeepTheirGradient) {
  for (bool trainable : {true, false}) {
    Graph g;
    Value *x = g.input("x", {batch, heads, length, width});
    Value *angles = g.parameter("angles", {length, width}, trainable);
    auto wide = [&](Op op) { return g.b.broadcast(g.b.unary(op, angles), x->type().shape()); };
    g.result(rotated(g, x, wide(Op::cos), wide(Op::sin)));
    g.recognize();
    EXPECT_EQ(g.count(Op::rotary), trainable ? 0 : 1);
  }
}

TEST(RecognizeRotary, LooksAlikeButIsNot) {
  Graph g;
  Builder &b = g.b;
  Value *x = g.input("x", {batch, heads, length, width}), *other = g.input("other", {batch, heads, length, width});
  Value *cos = table(g, "cos", x), *sin = table(g, "sin", x);
  constexpr int64_t half = width / 2;
  auto sumWith = [&](Value *turned) { return b.add(b.mul(x, cos), b.mul(turned, sin)); };
  auto low = [&](Value *of) { return slice(g, of, 0, half); };
  auto minusHigh = [&](Value *of) { return b.unary(Op::neg, slice(g, of, half, half)); };
  Value *sum = sumWith(joined(g, minusHigh(other), low(other)));
  for (Value *turned : {joined(g, minusHigh(x), low(other)), joined(g, low(x), minusHigh(x)),
                        joined(g, slice(g, x, half, half), low(x)), joined(g, minusHigh(x), minusHigh(x))})
    sum = b.add(sum, sumWith(turned));
  Value *first = low(x), *second = slice(g, x, half, half), *halfCos = low(cos), *halfSin = low(sin);
  auto difference = [&] { return b.sub(b.mul(first, halfCos), b.mul(second, halfSin)); };
  sum = b.add(sum, joined(g, difference(), b.add(b.mul(first, halfCos), b.mul(second, halfSin))));
  sum = b.add(sum, joined(g, b.sub(b.mul(second, halfCos), b.mul(first, halfSin)),
                          b.add(b.mul(first, halfCos), b.mul(second, halfSin))));
  Value *unequal = joined(g, b.unary(Op::neg, slice(g, x, 2, 6)), slice(g, x, 0, 2));
  g.result(b.add(sum, sumWith(unequal)));
  g.recognize();
  EXPECT_EQ(g.count(Op::rotary), 0);
}

// ---- SiLU

TEST(RecognizeSilu, InEitherOrder) {
  for (bool gateFirst : {false, true}) {
    Graph g;
    Value *x = g.input("x", {2, 3}), *up = g.input("up", {2, 3}), *gate = g.b.unary(Op::sigmoid, x);
    g.result(g.b.mul(gateFirst ? g.b.mul(gate, x) : g.b.mul(x, gate), up));
    g.recognize();
    EXPECT_EQ(g.only(Op::silu)->operand(0), x);
    EXPECT_EQ(g.count(Op::sigmoid), 0);
  }
}

TEST(RecognizeSilu, OtherGatesStay) {
  Graph g;
  Value *x = g.input("x", {2, 3}), *other = g.input("other", {2, 3});
  g.result(g.b.mul(x, g.b.unary(Op::sigmoid, other)));
  g.recognize();
  EXPECT_EQ(g.count(Op::silu), 0);
}

} // namespace
} // namespace fsdpc
