// Nodes that the dynamo exporter merged because values were equal are split again, as far as the traced statements
// distinguish them.
#include "tests/frontend/split_nodes.h"

#include "gmock/gmock.h"

namespace fsdpc {

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr const char *twoNorms = R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,1] y)
<float[2] "l.norm1.weight" = {1,1}, float[2] "l.norm1.bias" = {0,0}, float[2,1] "l.a.weight" = {1,2}, float[2,1] "l.b.weight" = {2,1}> {
  ["norm"] layer_norm = LayerNormalization(x, "l.norm1.weight", "l.norm1.bias")
  ["a"] linear = MatMul(layer_norm, "l.a.weight")
  ["b"] linear_1 = MatMul(layer_norm, "l.b.weight")
  ["add"] y = Add(linear, linear_1)
})";

TEST_F(SplitNodes, TwoNormsOfOneInputAreTwoNodes) {
  load(twoNorms,
       {{"p_w1", "l.norm1.weight"},
        {"p_b1", "l.norm1.bias"},
        {"p_w2", "l.norm2.weight"},
        {"p_b2", "l.norm2.bias"},
        {"p_a", "l.a.weight"},
        {"p_b", "l.b.weight"}},
       {{"norm", "l.norm1", "layer_norm 1 layer_norm.default(%x, [2], %p_w1, %p_b1)"},
        {"a", "l.a", "linear 1 linear.default(%layer_norm, %p_a)"},
        {"b", "l.b", "linear_1 1 linear.default(%layer_norm_1, %p_b)"},
        {"add", "l", "y 1 add.Tensor(%linear, %linear_1)"}});
  EXPECT_THAT(inputsOfProducer("a", 0), ElementsAre("x", "l.norm1.weight", "l.norm1.bias"));
  EXPECT_THAT(inputsOfProducer("b", 0), ElementsAre("x", "l.norm2.weight", "l.norm2.bias"));
  EXPECT_THAT(ambiguous, IsEmpty());
  // The copy is in its own module and quotes its own statement.
  GraphIndex index(model.graph());
  const onnx::NodeProto *copy = index.producer(inputsOf("b")[0]);
  EXPECT_EQ(index.scopes[index.producerPosition(inputsOf("b")[0])], "l.norm2");
  EXPECT_TRUE(metadataOf(*copy, statementKey).contains("%layer_norm_1 : "));
  EXPECT_TRUE(metadataOf(*copy, statementKey).contains("%p_w2, %p_b2"));
}

TEST_F(SplitNodes, ModuleThatIsCalledTwiceIsOne) {
  load(twoNorms, {{"p_w1", "l.norm1.weight"}, {"p_b1", "l.norm1.bias"}, {"p_a", "l.a.weight"}, {"p_b", "l.b.weight"}},
       {{"norm", "l.norm1", "layer_norm 1 layer_norm.default(%x, [2], %p_w1, %p_b1)"},
        {"a", "l.a", "linear 1 linear.default(%layer_norm, %p_a)"},
        {"b", "l.b", "linear_1 1 linear.default(%layer_norm_1, %p_b)"},
        {"add", "l", "y 1 add.Tensor(%linear, %linear_1)"}});
  EXPECT_THAT(inputsOf("b"), ElementsAre("layer_norm", "l.b.weight"));
  EXPECT_EQ(model.graph().node_size(), 4);
}

TEST_F(SplitNodes, ParametersWhoseReadersNobodyKnowsAreLeftAndNamed) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,1] y)
<float[2] "nq.weight" = {1,1}, float[2,1] "q.weight" = {1,2}, float[2,1] "k.weight" = {2,3}, float[2,1] "v.weight" = {3,1}> {
  ["norm"] layer_norm = LayerNormalization(x, "nq.weight")
  ["q"] linear = MatMul(layer_norm, "q.weight")
  ["k"] linear_1 = MatMul(layer_norm, "k.weight")
  ["v"] linear_2 = MatMul(layer_norm, "v.weight")
  ["mul"] mul = Mul(linear, linear_1)
  ["add"] y = Add(mul, linear_2)
})",
       {{"p_nq", "nq.weight"},
        {"p_nk", "nk.weight"},
        {"p_nv", "nv.weight"},
        {"p_q", "q.weight"},
        {"p_k", "k.weight"},
        {"p_v", "v.weight"}},
       {{"norm", "nq", "layer_norm 1 layer_norm.default(%x, [2], %p_nq)"},
        {"q", "q", "linear 1 linear.default(%layer_norm, %p_q)"},
        {"k", "k", "linear_1 1 linear.default(%layer_norm_1, %p_k)"},
        {"v", "v", "linear_2 1 linear.default(%layer_norm_2, %p_v)"}});
  EXPECT_THAT(ambiguous, UnorderedElementsAre("nk.weight", "nv.weight"));
  EXPECT_THAT(inputsOf("k"), ElementsAre("layer_norm", "k.weight"));
  EXPECT_THAT(inputsOf("v"), ElementsAre("layer_norm", "v.weight"));
}

TEST_F(SplitNodes, ChainOfMergedModulesIsCopiedAsAWhole) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,1] y)
<float[2] "a.0.weight" = {1,1}, float[2,2] "a.1.weight" = {1,1,1,1}, float[2,1] "o.weight" = {1,2}, float[2,1] "p.weight" = {2,1}> {
  ["norm"] layer_norm = LayerNormalization(x, "a.0.weight")
  ["fc"] linear = MatMul(layer_norm, "a.1.weight")
  ["act"] gelu = Gelu(linear)
  ["o"] linear_1 = MatMul(gelu, "o.weight")
  ["p"] linear_3 = MatMul(gelu, "p.weight")
  ["add"] y = Add(linear_1, linear_3)
})",
       {{"p_a0", "a.0.weight"},
        {"p_b0", "b.0.weight"},
        {"p_b1", "b.1.weight"},
        {"p_a1", "a.1.weight"},
        {"p_o", "o.weight"},
        {"p_p", "p.weight"}},
       {{"norm", "a.0", "layer_norm 1 layer_norm.default(%x, [2], %p_a0)"},
        {"fc", "a.1", "linear 1 linear.default(%layer_norm, %p_a1)"},
        {"act", "a.2", "gelu 1 gelu.default(%linear)"},
        {"o", "o", "linear_1 1 linear.default(%gelu, %p_o)"},
        {"p", "p", "linear_3 1 linear.default(%gelu_1, %p_p)"}});
  EXPECT_THAT(inputsOf("o"), ElementsAre("gelu", "o.weight"));
  ASSERT_THAT(inputsOfProducer("p", 0).size(), 1u);
  std::string act = inputsOfProducer("p", 0)[0];
  EXPECT_NE(act, "linear");
  GraphIndex index(model.graph());
  const onnx::NodeProto *fc = index.producer(act);
  ASSERT_TRUE(fc);
  EXPECT_EQ(fc->input(1), "b.1.weight");
  const onnx::NodeProto *norm = index.producer(fc->input(0));
  ASSERT_TRUE(norm);
  EXPECT_EQ(norm->input(1), "b.0.weight");
}

TEST_F(SplitNodes, PartOfAStatementThatAnotherDoesIsCopied) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,2] y)
<float[2,2] "a.weight" = {1,1,1,1}, float[2] "a.bias" = {1,2}, float[2] "b.bias" = {4,3}> {
  ["a_product"] val_1 = MatMul(x, "a.weight")
  ["a"] linear = Add(val_1, "a.bias")
  ["b"] linear_1 = Add(val_1, "b.bias")
  ["add"] y = Add(linear, linear_1)
})",
       {{"p_aw", "a.weight"}, {"p_ab", "a.bias"}, {"p_bw", "b.weight"}, {"p_bb", "b.bias"}},
       {{"a_product", "a", "linear 1 linear.default(%x, %p_aw, %p_ab)"},
        {"a", "a", "linear 1 linear.default(%x, %p_aw, %p_ab)"},
        {"b", "b", "linear_1 1 linear.default(%x, %p_bw, %p_bb)"},
        {"add", "", "y 1 add.Tensor(%linear, %linear_1)"}});
  EXPECT_THAT(inputsOfProducer("a", 0), ElementsAre("x", "a.weight"));
  EXPECT_THAT(inputsOfProducer("b", 0), ElementsAre("x", "b.weight"));
}

TEST_F(SplitNodes, StatementsTellWhichParameterAReadMeans) {
  // A layer scale, a table and a scalar, of any size. Reads that quote the same placeholder are tied.
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x, int64[2] i) => (float[2,2] y)
<float[2] "b.0.gamma" = {1,1}, float[3,2] "e.weight" = {0,0,0,0,0,0}, float "s.logit_scale" = {2}, float[2,2] "t.weight" = {1,2,3,4}> {
  ["g0"] mul = Mul(x, "b.0.gamma")
  ["g1"] mul_1 = Mul(mul, "b.0.gamma")
  ["e0"] embedding = Gather("e.weight", i)
  ["e1"] embedding_1 = Gather("e.weight", i)
  ["s0"] mul_2 = Mul(mul_1, "s.logit_scale")
  ["s1"] mul_3 = Mul(mul_2, "s.logit_scale")
  ["t0"] linear = MatMul(mul_3, "t.weight")
  ["t1"] linear_1 = MatMul(linear, "t.weight")
  ["c"] mul_4 = Mul(linear_1, "s.logit_scale")
  ["add"] add = Add(embedding, embedding_1)
  ["out"] y = Add(mul_4, add)
})",
       {{"p_g0", "b.0.gamma"},
        {"p_g1", "b.1.gamma"},
        {"p_e0", "e.weight"},
        {"p_e1", "f.weight"},
        {"p_s0", "s.logit_scale"},
        {"p_s1", "u.logit_scale"},
        {"p_t0", "r.weight"},
        {"p_t1", "t.weight"}},
       {{"g0", "b.0", "mul 1 mul.Tensor(%x, %p_g0)"},
        {"g1", "b.1", "mul_1 1 mul.Tensor(%mul, %p_g1)"},
        {"e0", "e", "embedding 1 embedding.default(%p_e0, %i)"},
        {"e1", "f", "embedding_1 1 embedding.default(%p_e1, %i)"},
        {"s0", "s", "mul_2 1 mul.Tensor(%mul_1, %p_s0)"},
        {"s1", "u", "mul_3 1 mul.Tensor(%mul_2, %p_s1)"},
        {"t0", "r", "linear 1 linear.default(%mul_3, %p_t1)"},
        {"t1", "t", "linear_1 1 linear.default(%linear, %p_t1)"},
        {"c", "v", "mul_4 1 mul.Tensor(%linear_1, 2.0)"}});
  EXPECT_THAT(inputsOf("g0"), ElementsAre("x", "b.0.gamma"));
  EXPECT_THAT(inputsOf("g1"), ElementsAre("mul", "b.1.gamma"));
  EXPECT_THAT(inputsOf("e1"), ElementsAre("f.weight", "i"));
  EXPECT_THAT(inputsOf("s1"), ElementsAre("mul_2", "u.logit_scale"));
  EXPECT_THAT(inputsOf("t0"), ElementsAre("mul_3", "t.weight"));
  EXPECT_THAT(inputsOf("t1"), ElementsAre("linear", "t.weight"));
  // The factor 2 is a number in the code, not a parameter.
  EXPECT_THAT(inputsOf("c"), ElementsAre("linear_1", "s.logit_scale.constant"));
}

TEST_F(SplitNodes, WeightAndBiasOfOneNormThatStartEqualAreTwo) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,2] y) <float[2] "n.weight" = {0,0}> {
  ["n"] layer_norm = LayerNormalization(x, "n.weight", "n.weight")
  ["m"] y = LayerNormalization(layer_norm, "n.weight", "n.weight")
})",
       {{"p_nw", "n.weight"}, {"p_nb", "n.bias"}, {"p_mw", "m.weight"}, {"p_mb", "m.bias"}},
       {{"n", "n", "layer_norm 1 layer_norm.default(%x, [2], %p_nw, %p_nb)"},
        {"m", "m", "y 1 layer_norm.default(%layer_norm, [2], %p_mw, %p_mb)"}});
  EXPECT_THAT(inputsOf("n"), ElementsAre("x", "n.weight", "n.bias"));
  EXPECT_THAT(inputsOf("m"), ElementsAre("layer_norm", "m.weight", "m.bias"));
}

TEST_F(SplitNodes, ConstantsOfAGroupNormStayConstants) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2,2] x) => (float[2,2,2] y)
<float[2] ones = {1,1}, float[2] zeros = {0,0}, float[2,1] "a.weight" = {1,1}, float[2,1] "a.bias" = {0,0}> {
  ["i0"] val_0 = InstanceNormalization(x, ones, zeros)
  ["w0"] val_1 = Mul(val_0, "a.weight")
  ["b0"] group_norm = Add(val_1, "a.bias")
  ["i1"] val_2 = InstanceNormalization(group_norm, ones, zeros)
  ["w1"] val_3 = Mul(val_2, "a.weight")
  ["b1"] y = Add(val_3, "a.bias")
})",
       {{"p_aw", "a.weight"}, {"p_ab", "a.bias"}, {"p_bw", "b.weight"}, {"p_bb", "b.bias"}},
       {{"i0", "a", "group_norm 1 group_norm.default(%x, 2, %p_aw, %p_ab)"},
        {"w0", "a", "group_norm 1 group_norm.default(%x, 2, %p_aw, %p_ab)"},
        {"b0", "a", "group_norm 1 group_norm.default(%x, 2, %p_aw, %p_ab)"},
        {"i1", "b", "y 1 group_norm.default(%group_norm, 2, %p_bw, %p_bb)"},
        {"w1", "b", "y 1 group_norm.default(%group_norm, 2, %p_bw, %p_bb)"},
        {"b1", "b", "y 1 group_norm.default(%group_norm, 2, %p_bw, %p_bb)"}});
  EXPECT_THAT(inputsOf("i1"), ElementsAre("group_norm", "ones", "zeros"));
  EXPECT_THAT(inputsOf("w1"), ElementsAre("val_2", "b.weight"));
  EXPECT_THAT(inputsOf("b1"), ElementsAre("val_3", "b.bias"));
}

// x @ weight.T, as in FalconLinear: the matmul quotes the transpose, and the transpose quotes the weight.
constexpr const char *twoTransposes = R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,2] y)
<float[2,2] "a.weight" = {1,2,3,4}> {
  ["ta"] permute = Transpose<perm=[1,0]>("a.weight")
  ["a"] matmul = MatMul(x, permute)
  ["tb"] permute_1 = Transpose<perm=[1,0]>("a.weight")
  ["b"] y = MatMul(matmul, permute_1)
})";

TEST_F(SplitNodes, WeightThatItsModuleTransposesIsThatModules) {
  load(twoTransposes, {{"p_a", "a.weight"}},
       {{"ta", "a", "permute 1 permute.default(%p_a, [1, 0])"},
        {"a", "a", "matmul 1 matmul.default(%x, %permute)"},
        {"tb", "a", "permute_1 1 permute.default(%p_a, [1, 0])"},
        {"b", "a", "y 1 matmul.default(%matmul, %permute_1)"}});
  EXPECT_THAT(inputsOfProducer("a", 1), ElementsAre("a.weight"));
  EXPECT_THAT(inputsOfProducer("b", 1), ElementsAre("a.weight"));
  EXPECT_EQ(model.graph().initializer_size(), 1);
}

TEST_F(SplitNodes, TransposeTellsWhichOfTwoEqualWeightsItReads) {
  load(twoTransposes, {{"p_a", "a.weight"}, {"p_b", "b.weight"}},
       {{"ta", "a", "permute 1 permute.default(%p_a, [1, 0])"},
        {"a", "a", "matmul 1 matmul.default(%x, %permute)"},
        {"tb", "b", "permute_1 1 permute.default(%p_b, [1, 0])"},
        {"b", "b", "y 1 matmul.default(%matmul, %permute_1)"}});
  EXPECT_THAT(inputsOfProducer("a", 1), ElementsAre("a.weight"));
  EXPECT_THAT(inputsOfProducer("b", 1), ElementsAre("b.weight"));
}

} // namespace

} // namespace fsdpc
