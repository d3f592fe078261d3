// What Llama and its relatives are made of, in the forms exporters write it: grouped queries, SiLU.
#include "tests/unit/graph_under_test.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {
namespace {

constexpr int64_t batch = 2, heads = 6, keyHeads = 2, length = 4, width = 8;

// ---- grouped queries
// --------------------------------------------------------------------------------------------------------

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

// ---- SiLU
// -------------------------------------------------------------------------------------------------------------------

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
