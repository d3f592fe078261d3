// Patterns are recognised in every form that exporters write, and their results do not change.
#include "tests/unit/graph_under_test.h"

namespace fsdpc {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// ---- LayerNorm

enum class Root { division, powHalf, rsqrt, reciprocal, powMinusHalf };
struct NormForm {
  Root root = Root::division;
  bool squareIsPow = false, meanDivides = false, twoDifferences = false, keepsDims = true;
};

/// d / sqrt(sum), with the sum broadcast to the shape of d.
Value *divideByRoot(Graph &g, Value *d, Value *sum, Root root) {
  Builder &b = g.b;
  auto wide = [&](Value *value) { return b.broadcast(value, d->type().shape()); };
  switch (root) {
  case Root::division: return b.div(d, wide(b.unary(Op::sqrt, sum)));
  case Root::powHalf: return b.div(d, wide(b.binary(Op::pow, sum, g.number(sum, 0.5))));
  case Root::rsqrt: return b.mul(wide(b.unary(Op::rsqrt, sum)), d);
  case Root::reciprocal: return b.mul(d, wide(b.div(g.number(sum, 1), b.unary(Op::sqrt, sum))));
  case Root::powMinusHalf: return b.mul(d, b.binary(Op::pow, wide(sum), g.number(d, -0.5)));
  }
  return nullptr;
}

Value *normalize(Graph &g, Value *x, const NormForm &form) {
  Builder &b = g.b;
  Shape shape(x->type().shape());
  auto difference = [&] { return b.sub(x, b.broadcast(g.mean(x, form.meanDivides), shape)); };
  Value *d = difference(), *other = form.twoDifferences ? difference() : d;
  Value *square = form.squareIsPow ? b.binary(Op::pow, other, g.number(d, 2)) : b.mul(other, other);
  Value *variance = g.mean(square, form.meanDivides);
  if (!form.keepsDims)
    variance = b.reshape(b.reshape(variance, llvm::ArrayRef<int64_t>(shape).drop_back()), variance->type().shape());
  return divideByRoot(g, d, b.add(variance, g.number(variance, 1e-5)), form.root);
}

TEST(RecognizeLayerNorm, EveryDecomposedForm) {
  for (Root root : {Root::division, Root::powHalf, Root::rsqrt, Root::reciprocal, Root::powMinusHalf})
    for (int bits = 0; bits < 16; ++bits) {
      Graph g;
      Value *x = g.input("x", {2, 3, 8});
      NormForm form{root, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
      Value *n = normalize(g, x, form);
      Value *gamma = g.b.broadcast(g.parameter("ln.weight", {8}), {2, 3, 8});
      Value *beta = g.b.broadcast(g.parameter("ln.bias", {8}), {2, 3, 8});
      g.result(bits & 1 ? g.b.add(g.b.mul(n, gamma), beta) : g.b.add(beta, g.b.mul(gamma, n)));
      g.recognize();
      Node *norm = g.only(Op::layerNorm);
      ASSERT_TRUE(norm) << "root " << int(root) << " bits " << bits;
      EXPECT_EQ(norm->get<NormAttributes>().axis, 2);
      EXPECT_EQ(norm->operand(2)->definer()->op(), Op::read);
      EXPECT_EQ(g.count(Op::reduceSum) + g.count(Op::mul) + g.count(Op::add), 0) << toText(g.module);
    }
}

TEST(RecognizeLayerNorm, WithoutAffineAndInOneRow) {
  for (int64_t rows : {1, 3}) {
    Graph g;
    Value *x = g.input("x", {rows, 8});
    g.result(normalize(g, x, {}));
    g.recognize();
    g.only(Op::layerNorm);
    EXPECT_EQ(g.count(Op::reduceSum), 0);
  }
}

TEST(RecognizeLayerNorm, ScaledFormOfKeras) {
  Graph g;
  Builder &b = g.b;
  Shape shape = {2, 3, 8};
  Value *x = g.input("x", shape);
  Value *mean = b.broadcast(g.mean(x, false), shape);
  Value *d = b.sub(x, mean);
  Value *variance = g.mean(b.mul(d, d), false);
  Value *root = b.broadcast(b.unary(Op::rsqrt, b.add(variance, g.number(variance, 1e-3))), shape);
  Value *scale = b.mul(root, b.broadcast(g.parameter("gamma", {8}), shape));
  Value *beta = b.broadcast(g.parameter("beta", {8}), shape);
  g.result(b.add(b.mul(x, scale), b.sub(beta, b.mul(mean, scale))));
  g.recognize();
  EXPECT_DOUBLE_EQ(g.only(Op::layerNorm)->get<NormAttributes>().epsilon, static_cast<float>(1e-3));
}

TEST(RecognizeLayerNorm, LooksAlikeButIsNot) {
  Graph g;
  Builder &b = g.b;
  Value *x = g.input("x", {8, 8});
  // The mean over columns, broadcast over rows. The matrix is square, so only the axes differ from a LayerNorm.
  Value *mean = b.mul(b.reduceSum(x, {0}, true), b.constant(Type(DType::f32, {1, 8}), 0.125));
  Value *d = b.sub(x, b.broadcast(mean, {8, 8}));
  Value *variance = g.mean(b.mul(d, d), false);
  g.result(b.div(d, b.broadcast(b.unary(Op::sqrt, b.add(variance, g.number(variance, 1e-5))), {8, 8})));
  g.recognize();
  EXPECT_EQ(g.count(Op::layerNorm), 0);
}

// ---- RMSNorm

TEST(RecognizeRmsNorm, EveryDecomposedForm) {
  for (Root root : {Root::division, Root::powHalf, Root::rsqrt, Root::reciprocal, Root::powMinusHalf})
    for (bool squareIsPow : {false, true})
      for (bool gammaFirst : {false, true}) {
        Graph g;
        Builder &b = g.b;
        Value *x = g.input("x", {2, 1, 8}), *gamma = b.broadcast(g.input("gamma", {8}), {2, 1, 8});
        Value *power = g.mean(squareIsPow ? b.binary(Op::pow, x, g.number(x, 2)) : b.mul(x, x), false);
        Value *sum = b.add(g.number(power, 1e-5), power);
        Value *n = divideByRoot(g, x, sum, root);
        g.result(gammaFirst ? b.mul(gamma, n) : b.mul(n, gamma));
        g.recognize();
        Node *norm = g.only(Op::rmsNorm);
        ASSERT_TRUE(norm) << toText(g.module);
        EXPECT_EQ(norm->get<NormAttributes>().axis, 2);
        EXPECT_NEAR(norm->get<NormAttributes>().epsilon, 1e-5, 1e-9);
        EXPECT_EQ(g.count(Op::mul) + g.count(Op::reduceSum), 0) << toText(g.module);
      }
}

TEST(RecognizeRmsNorm, LooksAlikeButIsNot) {
  Graph g;
  Builder &b = g.b;
  Value *x = g.input("x", {4, 8}), *other = g.input("other", {4, 8});
  Value *power = g.mean(b.mul(x, x), false), *mixed = g.mean(b.mul(x, other), false);
  Value *ofAnother = divideByRoot(g, other, b.add(power, g.number(power, 1e-5)), Root::rsqrt);
  Value *notASquare = divideByRoot(g, x, b.add(mixed, g.number(mixed, 4)), Root::rsqrt);
  Value *withoutEpsilon = divideByRoot(g, x, b.add(power, power), Root::rsqrt);
  g.result(b.add(ofAnother, b.add(notASquare, withoutEpsilon)));
  g.runBlindly({&foldConstants, &canonicalize, &eliminateCommon, &recognizePatterns, &canonicalize, &eliminateDead});
  EXPECT_EQ(g.count(Op::rmsNorm), 0);
}

// ---- GELU

/// x * gate / 2 in five groupings.
Value *half(Graph &g, Value *x, Value *gate, int grouping) {
  Builder &b = g.b;
  Value *h = g.number(x, 0.5), *two = g.number(x, 2);
  switch (grouping) {
  case 0: return b.mul(b.mul(x, h), gate);
  case 1: return b.mul(b.mul(x, gate), h);
  case 2: return b.mul(x, b.mul(h, gate));
  case 3: return b.div(b.mul(gate, x), two);
  default: return b.mul(gate, b.div(x, two));
  }
}

TEST(RecognizeGelu, ErfInEveryGrouping) {
  for (int grouping = 0; grouping < 5; ++grouping)
    for (bool divides : {false, true})
      for (bool scaled : {false, true}) {
        Graph g;
        Builder &b = g.b;
        Value *x = g.input("x", {3, 8});
        if (scaled)
          x = b.mul(x, g.number(x, 0.3));
        Value *u = divides ? b.div(x, g.number(x, 1.4142135)) : b.mul(g.number(x, 0.70710677), x);
        Value *gate = b.add(b.unary(Op::erf, u), g.number(x, 1));
        g.result(half(g, x, gate, grouping));
        g.recognize();
        g.only(Op::gelu);
        EXPECT_EQ(g.count(Op::erf), 0);
        EXPECT_EQ(g.count(Op::mul), scaled ? 1 : 0);
      }
}

TEST(RecognizeGelu, TanhInEveryGrouping) {
  for (int grouping = 0; grouping < 5; ++grouping)
    for (int cubic = 0; cubic < 3; ++cubic) {
      Graph g;
      Builder &b = g.b;
      Value *x = g.input("x", {3, 8});
      Value *k = g.number(x, 0.044715), *root = g.number(x, 0.7978845834732056), *one = g.number(x, 1);
      Value *u = nullptr;
      if (cubic == 0)
        u = b.mul(b.add(x, b.mul(b.binary(Op::pow, x, g.number(x, 3)), k)), root);
      else if (cubic == 1)
        u = b.mul(root, b.add(x, b.mul(k, b.mul(x, b.mul(x, x)))));
      else
        u = b.mul(b.mul(x, root), b.add(one, b.mul(b.mul(k, x), x)));
      g.result(half(g, x, b.add(one, b.unary(Op::tanh, u)), grouping));
      g.recognize();
      g.only(Op::geluTanh);
      EXPECT_EQ(g.count(Op::tanh) + g.count(Op::mul), 0);
    }
}

TEST(RecognizeGelu, OtherGatesStay) {
  Graph g;
  Builder &b = g.b;
  Value *x = g.input("x", {3, 8}), *other = g.input("other", {3, 8});
  Value *one = g.number(x, 1);
  Value *wrongConstant = half(g, x, b.add(b.unary(Op::erf, x), one), 0);
  Value *wrongArgument = half(g, x, b.add(b.unary(Op::erf, b.mul(other, g.number(x, 0.70710677))), one), 0);
  g.result(b.add(wrongConstant, wrongArgument));
  g.recognize();
  EXPECT_EQ(g.count(Op::gelu), 0);
}

// ---- Attention

constexpr int64_t batch = 2, heads = 3, queries = 4, width = 5;

Dense causalDense(double hidden) {
  std::vector<double> values;
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < queries; ++j)
      values.push_back(j <= i ? 0 : hidden);
  return Dense::fromDoubles(DType::f32, values);
}

Value *softmaxOf(Builder &b, Value *scores) {
  return b.create(Op::softmax, {scores}, AxisAttributes{scores->type().rank() - 1})->result();
}

enum class ScaleOn { query, key, both, scores, scoresDivided, none };
enum class KeyForm { flag, swap, fourAxes, threeAxes };

/// softmax(q k^T) v with q, k, v from [B,S,H,D]; `mask` turns scores into masked scores.
Value *attend(Graph &g, ScaleOn scale, KeyForm form, llvm::function_ref<Value *(Value *)> mask, bool guard) {
  Builder &b = g.b;
  auto head = [&](const char *name) {
    return b.transpose(g.input(name, {batch, queries, heads, width}), {0, 2, 1, 3});
  };
  Value *q = head("q"), *v = head("v");
  Value *k = nullptr;
  if (form == KeyForm::fourAxes) {
    k = b.transpose(g.input("k", {batch, queries, heads, width}), {0, 2, 3, 1});
  } else if (k = head("k"); form == KeyForm::swap) {
    k = b.swapLastTwo(k);
  } else if (form == KeyForm::threeAxes) {
    k = b.swapLastTwo(b.reshape(k, {batch * heads, queries, width}));
    k = b.reshape(k, {batch, heads, width, queries});
  }
  double root = std::sqrt(0.4);
  if (scale == ScaleOn::query || scale == ScaleOn::both)
    q = b.mul(q, g.number(q, scale == ScaleOn::both ? root : 0.4));
  if (scale == ScaleOn::key || scale == ScaleOn::both)
    k = b.mul(k, g.number(k, scale == ScaleOn::both ? root : 0.4));
  Value *scores = b.matmul(q, k, false, form == KeyForm::flag);
  if (scale == ScaleOn::scores)
    scores = b.mul(scores, g.number(scores, 0.4));
  if (scale == ScaleOn::scoresDivided)
    scores = b.div(scores, g.number(scores, 2.5));
  Value *p = softmaxOf(b, mask(scores));
  if (guard)
    p = b.select(b.unary(Op::isNan, p), g.number(p, 0), p);
  return b.reshape(b.transpose(b.matmul(p, v), {0, 2, 1, 3}), {batch, queries, heads * width});
}

TEST(RecognizeAttention, EveryScaleAndKeyForm) {
  for (ScaleOn scale :
       {ScaleOn::query, ScaleOn::key, ScaleOn::both, ScaleOn::scores, ScaleOn::scoresDivided, ScaleOn::none})
    for (KeyForm form : {KeyForm::flag, KeyForm::swap, KeyForm::fourAxes, KeyForm::threeAxes})
      for (bool guard : {false, true}) {
        Graph g;
        g.result(attend(g, scale, form, [](Value *scores) { return scores; }, guard));
        g.recognize();
        Node *attention = g.only(Op::attention);
        ASSERT_TRUE(attention);
        const auto &attributes = attention->get<AttentionAttributes>();
        EXPECT_NEAR(attributes.scale, scale == ScaleOn::none ? 1 : 0.4, 1e-6);
        EXPECT_TRUE(attributes.sequenceFirst);
        EXPECT_FALSE(attributes.causal);
        EXPECT_EQ(attention->operandCount(), 3u);
        EXPECT_EQ(g.count(Op::transpose) + g.count(Op::matmul) + g.count(Op::softmax), 0) << toText(g.module);
      }
}

TEST(RecognizeAttention, CausalMasksBecomeAnAttribute) {
  for (double hidden : {-1e4, -infinity, -3.4028234663852886e38})
    for (int form = 0; form < 5; ++form) {
      Graph g;
      auto mask = [&](Value *scores) -> Value * {
        Builder &b = g.b;
        Shape shape(scores->type().shape());
        Value *added = b.constant(Type(DType::f32, {1, 1, queries, queries}), causalDense(hidden));
        Value *seen = b.constant(Type(DType::boolean, {queries, queries}), [&] {
          Dense dense = causalDense(1);
          std::vector<double> values;
          for (int64_t i = 0; i < queries * queries; ++i)
            values.push_back(dense.at(i) == 0);
          return Dense::fromDoubles(DType::boolean, values);
        }());
        switch (form) {
        case 0: return b.add(scores, b.broadcast(added, shape));
        case 1: return b.add(b.broadcast(added, shape), scores);
        case 2: return b.select(b.broadcast(seen, shape), scores, g.number(scores, hidden));
        case 3: return b.select(b.unary(Op::logicalNot, b.broadcast(seen, shape)), g.number(scores, hidden), scores);
        default: return b.sub(scores, b.broadcast(b.unary(Op::neg, added), shape));
        }
      };
      g.result(attend(g, ScaleOn::scores, KeyForm::swap, mask, form == 0));
      g.recognize();
      Node *attention = g.only(Op::attention);
      ASSERT_TRUE(attention);
      EXPECT_TRUE(attention->get<AttentionAttributes>().causal) << "form " << form << " hidden " << hidden;
      EXPECT_EQ(attention->operandCount(), 3u);
    }
}

TEST(RecognizeAttention, OtherMasksBecomeAnOperand) {
  for (int form = 0; form < 4; ++form) {
    Graph g;
    auto mask = [&](Value *scores) -> Value * {
      Builder &b = g.b;
      Shape shape(scores->type().shape());
      Value *causal = b.broadcast(b.constant(Type(DType::f32, {1, 1, queries, queries}), causalDense(-1e4)), shape);
      if (form == 0)
        return b.add(scores, b.broadcast(g.input("mask", {batch, 1, 1, queries}), shape));
      if (form == 1)
        return b.add(b.add(scores, causal), b.broadcast(g.input("mask", {batch, 1, 1, queries}), shape));
      if (form == 2)
        return b.add(scores, b.constant(scores->type(), 0));
      Value *keep = b.broadcast(g.input("keep", {batch, 1, 1, queries}, DType::boolean), shape);
      return b.select(keep, scores, g.number(scores, -1e4));
    };
    g.result(attend(g, ScaleOn::both, KeyForm::threeAxes, mask, true));
    g.recognize();
    Node *attention = g.only(Op::attention);
    ASSERT_TRUE(attention);
    EXPECT_EQ(attention->get<AttentionAttributes>().causal, form == 1);
    ASSERT_EQ(attention->operandCount(), form == 2 ? 3u : 4u);
    if (form != 2) {
      EXPECT_EQ(attention->operand(3)->type(), Type(DType::f32, {batch, 1, 1, queries}));
    }
  }
}

TEST(RecognizeAttention, ScoresChangeBetweenThreeAndFourAxes) {
  Graph g;
  Builder &b = g.b;
  auto head = [&](const char *name) {
    Value *x = b.transpose(g.input(name, {batch, queries, heads, width}), {0, 2, 1, 3});
    return b.reshape(x, {batch * heads, queries, width});
  };
  Value *q = head("q"), *k = head("k"), *v = head("v");
  Value *scores = b.reshape(b.matmul(q, k, false, true), {batch, heads, queries, queries});
  scores = b.add(scores, b.broadcast(g.input("mask", {batch, 1, queries, queries}), {batch, heads, queries, queries}));
  Value *p = softmaxOf(b, b.reshape(scores, {batch * heads, queries, queries}));
  Value *o = b.reshape(b.matmul(p, v), {batch, heads, queries, width});
  g.result(b.reshape(b.transpose(o, {0, 2, 1, 3}), {batch, queries, heads * width}));
  g.recognize();
  EXPECT_TRUE(g.only(Op::attention)->get<AttentionAttributes>().sequenceFirst);
  EXPECT_EQ(g.count(Op::transpose), 0) << toText(g.module);
}

TEST(RecognizeAttention, ThreeAxesWithAMaskOfTheirOwn) {
  Graph g;
  Builder &b = g.b;
  auto input = [&](const char *name) { return g.input(name, {batch * heads, queries, width}); };
  Value *scores = b.matmul(input("q"), input("k"), false, true);
  scores = b.add(scores, g.input("mask", {batch * heads, queries, queries}));
  g.result(b.matmul(softmaxOf(b, scores), input("v")));
  g.recognize();
  EXPECT_EQ(g.only(Op::attention)->operand(3)->type(), Type(DType::f32, {batch * heads, 1, queries, queries}));
}

TEST(RecognizeAttention, OneHeadWithoutABatch) {
  Graph g;
  Builder &b = g.b;
  Value *scores = b.matmul(g.input("q", {3, width}), g.input("k", {queries, width}), false, true);
  g.result(b.matmul(softmaxOf(b, scores), g.input("v", {queries, width})));
  g.recognize();
  g.only(Op::attention);
}

TEST(RecognizeAttention, PositionBiasKeepsItsGradient) {
  for (bool trainable : {true, false}) {
    Graph g;
    auto mask = [&](Value *scores) {
      Value *bias = g.parameter("relative_attention_bias.weight", {heads, queries, queries}, trainable);
      return g.b.add(scores, g.b.broadcast(bias, scores->type().shape()));
    };
    g.result(attend(g, ScaleOn::scores, KeyForm::swap, mask, false));
    g.recognize();
    EXPECT_EQ(g.count(Op::attention), trainable ? 0 : 1);
  }
}

TEST(RecognizeAttention, ProbabilitiesThatAreUsedStay) {
  Graph g;
  Builder &b = g.b;
  auto input = [&](const char *name) { return g.input(name, {batch, queries, width}); };
  Value *p = softmaxOf(b, b.matmul(input("q"), input("k"), false, true));
  Value *o = b.matmul(p, input("v"));
  g.result(b.add(b.reduceSum(o, {2}, false), b.reduceSum(b.mul(p, p), {2}, false)));
  g.recognize();
  EXPECT_EQ(g.count(Op::attention), 0);
}

} // namespace
} // namespace fsdpc
