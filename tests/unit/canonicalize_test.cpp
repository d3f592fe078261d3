// Canonical forms, folding and merging keep what a model computes.
#include "tests/unit/graph_under_test.h"

namespace fsdpc {
namespace {

TEST(Canonicalize, ReshapesMoveInFrontOfTransposesWhereTheyCan) {
  struct Case {
    Shape shape, permutation, reshaped;
    bool moves;
  };
  const Case cases[] = {
      {{24, 8, 16}, {1, 0, 2}, {2, 4, 24, 16}, true},
      {{1, 6, 4, 3, 8}, {3, 1, 2, 0, 4}, {3, 6, 4, 8}, true},
      {{2, 3, 4, 5}, {0, 2, 1, 3}, {2, 4, 15}, false},
      {{2, 3, 4, 5}, {2, 3, 0, 1}, {20, 6}, true},
      {{2, 3, 4, 5}, {2, 3, 0, 1}, {4, 1, 5, 2, 3, 1}, true},
      {{4, 6}, {1, 0}, {3, 8}, false},
      {{4, 6}, {1, 0}, {3, 2, 1, 4}, true},
      {{2, 1, 3}, {2, 1, 0}, {3, 2}, true},
  };
  for (const Case &c : cases) {
    Graph g;
    g.result(g.b.reshape(g.b.transpose(g.input("x", c.shape), c.permutation), c.reshaped));
    g.run({&canonicalize});
    EXPECT_EQ(g.function.returnNode()->operand(0)->definer()->op(), c.moves ? Op::transpose : Op::reshape)
        << toText(g.module);
  }
}

TEST(Canonicalize, IsDoneAfterOneRun) {
  Graph g;
  Builder &b = g.b;
  Value *x = g.input("x", {4, 6});
  Value *t = b.transpose(b.transpose(b.reshape(x, {2, 2, 6}), {2, 0, 1}), {1, 0, 2});
  Value *y = b.binary(Op::pow, b.mul(b.constant(t->type(), 1), t), g.number(t, 2));
  y = b.matmul(y, b.swapLastTwo(t), true, true);
  g.result(b.unary(Op::neg, b.unary(Op::neg, b.add(g.number(y, 0), y))));
  g.run({&canonicalize});
  std::string once = toText(g.module);
  g.run({&canonicalize});
  EXPECT_EQ(once, toText(g.module));
}

TEST(Canonicalize, GatherOfNeighboursIsASlice) {
  for (std::vector<double> indices : {std::vector<double>{1, 2, 3}, {0, 2, 4}, {-1}, {3, 2}, {1, 1}}) {
    Graph g;
    Value *x = g.input("x", {2, 5});
    auto count = static_cast<int64_t>(indices.size());
    Value *at = g.b.constant(Type(DType::i64, {count}), Dense::fromDoubles(DType::i64, indices));
    g.result(g.b.create(Op::gather, {x, at}, AxisAttributes{1})->result());
    g.run({&canonicalize});
    bool ascends = count == 1 || indices[1] > indices[0];
    EXPECT_EQ(g.count(Op::slice), ascends ? 1 : 0);
  }
}

TEST(Canonicalize, ComputesBeforeItBroadcasts) {
  Graph g;
  Builder &b = g.b;
  Value *small = g.input("x", {2, 1});
  Value *wide = b.broadcast(small, {2, 64});
  g.result(b.unary(Op::exp, b.mul(b.sub(g.number(wide, 1), wide), g.number(wide, -3))));
  g.run({&canonicalize});
  EXPECT_EQ(g.only(Op::exp)->result()->type(), Type(DType::f32, {2, 1}));
}

TEST(FoldConstants, SplatsStaySplats) {
  Graph g;
  Builder &b = g.b;
  Value *number = b.constant(Type(DType::f32, {1}), 0.25);
  Value *wide = b.broadcast(b.unary(Op::sqrt, number), {4096, 4096, 4096});
  g.input("x", {2});
  g.result(b.create(Op::slice, {wide}, SliceAttributes{{0, 0, 0}, {2, 1, 1}, {1, 1, 1}})->result());
  g.runBlindly({&foldConstants});
  Node *constant = g.function.returnNode()->operand(0)->definer();
  ASSERT_EQ(constant->op(), Op::constant);
  EXPECT_TRUE(constant->get<ConstantAttributes>().value.isSplat());
  EXPECT_EQ(g.count(Op::broadcast), 0);
}

// A dependency chain through all nodes must neither overflow the stack nor take quadratic time.
TEST(GraphPasses, LongChains) {
  Graph g;
  Builder &b = g.b;
  Value *x = g.input("x", {4});
  Value *y = x;
  for (int i = 0; i < 100000; ++i)
    y = i % 2 ? b.mul(y, x) : i % 3 ? b.add(y, x) : b.add(y, g.number(y, 0));
  b.ret({y}, {"y"});
  g.runBlindly({&foldConstants, &canonicalize, &eliminateCommon, &recognizePatterns, &canonicalize, &eliminateDead,
                &assignUnits});
  EXPECT_LT(g.function.size(), 100000u);
}

} // namespace
} // namespace fsdpc
