// Modules that read values of another module, where a statement quotes a value that no longer exists: parts of a
// parameter, a parameter in another shape, one of several results, a call of a module that still exists.
#include "tests/frontend/split_nodes.h"

namespace fsdpc {

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class MergedCalls : public SplitNodes {};

constexpr const char *partsOfABias = R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,2] y)
<float[4] "a.bias" = {0,0,0,0}, int64[2] sizes = {2,2}> {
  ["parts"] split_0, split_1 = Split("a.bias", sizes)
  ["a_q"] add = Add(x, split_0)
  ["a_k"] add_1 = Add(add, split_1)
  ["b_q"] add_2 = Add(add_1, split_0)
  ["b_k"] y = Add(add_2, split_1)
})";

const std::initializer_list<Quote> readersOfParts = {{"a_q", "a", "add 1 add.Tensor(%x, %getitem)"},
                                                     {"a_k", "a", "add_1 1 add.Tensor(%add, %getitem_1)"},
                                                     {"b_q", "b", "add_2 1 add.Tensor(%add_1, %getitem_2)"},
                                                     {"b_k", "b", "y 1 add.Tensor(%add_2, %getitem_3)"}};

TEST_F(MergedCalls, PartsThatAnotherModuleReadsAreOfItsOwnParameter) {
  load(partsOfABias, {{"p_a", "a.bias"}, {"p_b", "b.bias"}}, readersOfParts);
  for (const char *node : {"a_q", "a_k"})
    EXPECT_THAT(inputsOfProducer(node, 1), ElementsAre("a.bias", "sizes"));
  for (const char *node : {"b_q", "b_k"})
    EXPECT_THAT(inputsOfProducer(node, 1), ElementsAre("b.bias", "sizes"));
  EXPECT_NE(inputsOf("b_q")[1], inputsOf("b_k")[1]);
}

TEST_F(MergedCalls, PartsThatAModuleWithoutSuchAParameterReadsAreShared) {
  load(partsOfABias, {{"p_a", "a.bias"}, {"p_b", "b.other"}}, readersOfParts);
  EXPECT_THAT(inputsOfProducer("b_q", 1), ElementsAre("a.bias", "sizes"));
  EXPECT_EQ(model.graph().node_size(), 5);
}

constexpr const char *normAndScale = R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,2] y)
<float[2] "norm.weight" = {1,1}> {
  ["norm"] layer_norm = LayerNormalization(x, "norm.weight")
  ["scale"] y = Mul(layer_norm, "norm.weight")
})";

TEST_F(MergedCalls, TheOneParameterOfAModuleIsWhatItReadsInAnotherShape) {
  load(normAndScale, {{"p_n", "norm.weight"}, {"p_s", "scale.gain"}},
       {{"norm", "norm", "layer_norm 1 layer_norm.default(%x, [2], %p_n)"},
        {"scale", "scale", "y 1 mul.Tensor(%layer_norm, %view)"}});
  EXPECT_THAT(inputsOf("norm"), ElementsAre("x", "norm.weight"));
  EXPECT_THAT(inputsOf("scale"), ElementsAre("layer_norm", "scale.gain"));
}

TEST_F(MergedCalls, WhatWasComputedIsNoParameterInAnotherShape) {
  load(normAndScale, {{"p_n", "norm.weight"}, {"p_s", "scale.gain"}},
       {{"norm", "norm", "layer_norm 1 layer_norm.default(%x, [2], %p_n)"},
        {"scale", "scale", "y 1 mul.Tensor(%layer_norm, %exp)"}});
  EXPECT_THAT(inputsOf("scale"), ElementsAre("layer_norm", "norm.weight"));
}

TEST_F(MergedCalls, OneOfTwoParametersOfAModuleIsNotGuessed) {
  load(normAndScale, {{"p_n", "norm.weight"}, {"p_s", "scale.gain"}, {"p_t", "scale.other"}},
       {{"norm", "norm", "layer_norm 1 layer_norm.default(%x, [2], %p_n)"},
        {"scale", "scale", "y 1 mul.Tensor(%layer_norm, %view)"}});
  EXPECT_THAT(inputsOf("scale"), ElementsAre("layer_norm", "norm.weight"));
}

TEST_F(MergedCalls, TwoBatchNormsOfOneInputAreTwoNodes) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,1] y)
<float[2] "a.bn.weight" = {1,1}, float[2] "a.bn.bias" = {0,0}, float[2,1] "a.l.weight" = {1,2}, float[2,1] "b.l.weight" = {2,1}> {
  ["bn"] getitem = BatchNormalization(x, "a.bn.weight", "a.bn.bias", "a.bn.bias", "a.bn.weight")
  ["a"] linear = MatMul(getitem, "a.l.weight")
  ["b"] linear_1 = MatMul(getitem, "b.l.weight")
  ["add"] y = Add(linear, linear_1)
})",
       {{"p_aw", "a.bn.weight"},
        {"p_ab", "a.bn.bias"},
        {"p_am", "a.bn.running_mean"},
        {"p_av", "a.bn.running_var"},
        {"p_bw", "b.bn.weight"},
        {"p_bb", "b.bn.bias"},
        {"p_bm", "b.bn.running_mean"},
        {"p_bv", "b.bn.running_var"},
        {"p_a", "a.l.weight"},
        {"p_b", "b.l.weight"}},
       {{"bn", "a.bn", "batch_norm 1 batch_norm.default(%x, %p_aw, %p_ab, %p_am, %p_av)"},
        {"a", "a.l", "linear 1 linear.default(%getitem, %p_a)"},
        {"b", "b.l", "linear_1 1 linear.default(%getitem_3, %p_b)"},
        {"add", "", "y 1 add.Tensor(%linear, %linear_1)"}});
  EXPECT_THAT(inputsOfProducer("a", 0),
              ElementsAre("x", "a.bn.weight", "a.bn.bias", "a.bn.running_mean", "a.bn.running_var"));
  EXPECT_THAT(inputsOfProducer("b", 0),
              ElementsAre("x", "b.bn.weight", "b.bn.bias", "b.bn.running_mean", "b.bn.running_var"));
  EXPECT_THAT(ambiguous, IsEmpty());
}

TEST_F(MergedCalls, TheResultOfANormIsNoPartOfTheFoldedOneThatReadsIt) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2,1] x) => (float[2,2,1] y)
<float[2] "a.weight" = {1,1}, float[2] "a.bias" = {0,0}, float[2] "a.running_mean" = {0,1}, float[2] "a.running_var" = {1,2}, float[2,2,1] "c.weight" = {1,2,3,4}> {
  ["bn"] getitem = BatchNormalization(x, "a.weight", "a.bias", "a.running_mean", "a.running_var")
  ["conv"] getitem_3 = Conv(getitem, "c.weight")
  ["add"] y = Add(getitem, getitem_3)
})",
       {{"p_aw", "a.weight"},
        {"p_ab", "a.bias"},
        {"p_am", "a.running_mean"},
        {"p_av", "a.running_var"},
        {"p_c", "c.weight"},
        {"p_bw", "b.weight"},
        {"p_bb", "b.bias"},
        {"p_bm", "b.running_mean"},
        {"p_bv", "b.running_var"}},
       {{"bn", "a", "batch_norm 1 batch_norm.default(%x, %p_aw, %p_ab, %p_am, %p_av)"},
        {"conv", "b", "batch_norm_1 1 batch_norm.default(%conv1d, %p_bw, %p_bb, %p_bm, %p_bv)"},
        {"add", "", "y 1 add.Tensor(%getitem, %getitem_3)"}});
  EXPECT_THAT(inputsOf("conv"), ElementsAre("getitem", "c.weight"));
  EXPECT_EQ(model.graph().node_size(), 3);
}

constexpr const char *threeNorms = R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,1] y)
<float[2] "one.weight" = {1,1}, float[2,1] "a.weight" = {1,2}, float[2,1] "b.weight" = {2,1}, float[2,1] "blocks.1.c.weight" = {3,1}> {
  ["one"] layer_norm = LayerNormalization(x, "one.weight")
  ["a"] linear = MatMul(layer_norm, "a.weight")
  ["b"] linear_1 = MatMul(layer_norm, "b.weight")
  ["mul"] mul = Mul(x, linear)
  ["two"] layer_norm_2 = LayerNormalization(mul, "one.weight")
  ["c"] linear_2 = MatMul(layer_norm_2, "blocks.1.c.weight")
  ["add"] y = Add(linear_1, linear_2)
})";

const std::initializer_list<Quote> callsOfNorms = {
    {"one", "one", "layer_norm 1 layer_norm.default(%x, [2], %p_1)", "LayerNorm"},
    {"a", "a", "linear 1 linear.default(%layer_norm, %p_a)", "Linear"},
    {"b", "b", "linear_1 1 linear.default(%layer_norm_1, %p_b)", "Linear"},
    {"mul", "", "mul 1 mul.Tensor(%x, %linear)"},
    {"two", "two", "layer_norm_2 1 layer_norm.default(%mul, [2], %p_2)", "LayerNorm"},
    {"c", "blocks.1.c", "linear_2 1 linear.default(%layer_norm_2, %p_c)", "Linear"},
    {"add", "", "y 1 add.Tensor(%linear_1, %linear_2)"}};

TEST_F(MergedCalls, ACallThatMayBeOfAnotherModuleWithEqualParametersIsNamed) {
  load(threeNorms,
       {{"p_1", "one.weight"},
        {"p_2", "two.weight"},
        {"p_a", "a.weight"},
        {"p_b", "b.weight"},
        {"p_c", "blocks.1.c.weight"}},
       callsOfNorms);
  EXPECT_THAT(ambiguous, UnorderedElementsAre("one.weight"));
  EXPECT_THAT(inputsOf("b"), ElementsAre("layer_norm", "b.weight"));
}

TEST_F(MergedCalls, AStepThatChangesNothingIsNoCall) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,2] y)
<float[2] "one.weight" = {1,1}> {
  ["one"] mul = Mul(x, "one.weight")
  ["two"] mul_2 = Mul(mul, "one.weight")
  ["add"] y = Add(mul, mul_2)
})",
       {{"p_1", "one.weight"}, {"p_2", "two.weight"}},
       {{"one", "one", "mul 2 mul.Tensor(%x, %p_1)"},
        {"two", "two", "mul_2 1 mul.Tensor(%mul, %p_2)"},
        {"add", "", "y 1 add.Tensor(%mul_1, %mul_2)"}});
  EXPECT_THAT(ambiguous, IsEmpty());
}

TEST_F(MergedCalls, WhatAModuleComputesTwiceIsItsOwn) {
  load(R"(<ir_version: 10, opset_import: ["" : 20]>
agraph (float[2,2] x) => (float[2,2] y)
<float[2] "one.first" = {1,1}> {
  ["one"] add = Add(x, "one.first")
  ["sum"] mul = Mul(add, add)
  ["two"] y = Add(mul, "one.first")
})",
       {{"p_1", "one.first"}, {"p_2", "two.first"}},
       {{"one", "one", "add 1 add.Tensor(%x, %p_1)"},
        {"sum", "one", "mul 1 mul.Tensor(%add, %add_1)"},
        {"two", "two", "y 1 add.Tensor(%mul, %p_2)"}});
  EXPECT_THAT(ambiguous, IsEmpty());
}

TEST_F(MergedCalls, AModuleOfAnotherClassWasNotMerged) {
  load(threeNorms,
       {{"p_1", "one.weight"},
        {"p_2", "two.weight"},
        {"p_a", "a.weight"},
        {"p_b", "b.weight"},
        {"p_c0", "blocks.0.c.weight"},
        {"p_c", "blocks.1.c.weight"}},
       callsOfNorms);
  EXPECT_THAT(ambiguous, UnorderedElementsAre("one.weight"));
  EXPECT_THAT(inputsOf("b"), ElementsAre("layer_norm", "b.weight"));
}

} // namespace

} // namespace fsdpc
