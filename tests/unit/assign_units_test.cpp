// Which nodes and parameters form a unit, by names, by size and by policy.
#include "tests/unit/graph_under_test.h"

namespace fsdpc {
namespace {

/// y = x w for each parameter in turn, all of them [2,2] unless specified otherwise.
std::vector<std::string> unitsOf(const std::vector<std::pair<std::string, int64_t>> &parameters,
                                 PipelineOptions options = {}) {
  Graph g;
  Value *y = g.input("x", {2, 1});
  for (const auto &[name, columns] : parameters) {
    Value *w = g.parameter(name, {1, columns});
    y = g.b.reduceSum(g.b.matmul(y, w), {1}, true);
  }
  g.result(y);
  g.runBlindly({&assignUnits}, options);
  int32_t latest = 0;
  for (Node *node : g.function)
    if (node->op() != Op::ret) {
      EXPECT_GE(node->unit, latest) << "units are contiguous";
      latest = node->unit;
    }
  std::vector<std::string> units;
  for (const Unit &unit : g.module.units) {
    std::string text = unit.name + ":";
    for (const Parameter &parameter : g.module.parameters)
      text += parameter.unit == unit.name ? " " + parameter.name : "";
    units.push_back(text);
  }
  return units;
}

using Names = std::vector<std::string>;

TEST(AssignUnits, RepeatedBlocksAndWhatIsAround) {
  EXPECT_EQ(unitsOf({{"t.wte.weight", 8},
                     {"t.wpe.weight", 8},
                     {"t.h.0.attn.weight", 8},
                     {"t.h.0.mlp.weight", 8},
                     {"t.h.1.attn.weight", 8},
                     {"t.h.1.mlp.weight", 8},
                     {"t.ln_f.weight", 8}}),
            (Names{"t.pre: t.wte.weight t.wpe.weight", "t.h.0: t.h.0.attn.weight t.h.0.mlp.weight",
                   "t.h.1: t.h.1.attn.weight t.h.1.mlp.weight", "t.ln_f: t.ln_f.weight"}));
}

TEST(AssignUnits, NumbersAtTheEndOfNames) {
  EXPECT_EQ(unitsOf({{"conv_proj.weight", 8},
                     {"encoder.layers.encoder_layer_0.ln_1.weight", 8},
                     {"encoder.layers.encoder_layer_0.mlp.0.weight", 8},
                     {"encoder.layers.encoder_layer_1.ln_1.weight", 8},
                     {"encoder.layers.encoder_layer_1.mlp.0.weight", 8},
                     {"heads.head.weight", 8}}),
            (Names{"conv_proj: conv_proj.weight",
                   "encoder.layers.encoder_layer_0: encoder.layers.encoder_layer_0.ln_1.weight "
                   "encoder.layers.encoder_layer_0.mlp.0.weight",
                   "encoder.layers.encoder_layer_1: encoder.layers.encoder_layer_1.ln_1.weight "
                   "encoder.layers.encoder_layer_1.mlp.0.weight",
                   "heads.head: heads.head.weight"}));
}

TEST(AssignUnits, BlocksOfResNet) {
  EXPECT_EQ(unitsOf({{"conv1.weight", 8},
                     {"layer1.0.conv1.weight", 8},
                     {"layer1.0.conv2.weight", 8},
                     {"layer1.1.conv1.weight", 8},
                     {"layer1.1.conv2.weight", 8},
                     {"layer2.0.conv1.weight", 8},
                     {"layer2.0.conv2.weight", 8},
                     {"layer2.0.downsample.0.weight", 8},
                     {"layer2.1.conv1.weight", 8},
                     {"layer2.1.conv2.weight", 8},
                     {"fc.weight", 8}})
                .size(),
            6u);
}

TEST(AssignUnits, ASequenceOfDifferentModulesIsNoList) {
  EXPECT_EQ(unitsOf({{"0.layers.0.a.weight", 8}, {"0.layers.1.a.weight", 8}, {"1.fc.weight", 8}}),
            (Names{"0.layers.0: 0.layers.0.a.weight", "0.layers.1: 0.layers.1.a.weight", "1.fc: 1.fc.weight"}));
}

TEST(AssignUnits, BySizeWhereNothingRepeats) {
  EXPECT_EQ(unitsOf({{"conv1.weight", 32}, {"conv2.weight", 1800}, {"fc1.weight", 110000}, {"fc2.weight", 129}}),
            (Names{"conv1_to_conv2: conv1.weight conv2.weight", "fc1_to_fc2: fc1.weight fc2.weight"}));
}

TEST(AssignUnits, Policies) {
  PipelineOptions options;
  options.autoWrapPolicy = WrapPolicy::none;
  EXPECT_EQ(unitsOf({{"a.weight", 8}, {"b.weight", 8}}, options), (Names{"model: a.weight b.weight"}));
  options.autoWrapPolicy = WrapPolicy::sizeBased;
  options.minNumParams = 16;
  EXPECT_EQ(unitsOf({{"a.weight", 8}, {"b.weight", 8}, {"c.weight", 20}, {"d.weight", 1}}, options),
            (Names{"a_to_b: a.weight b.weight", "c: c.weight", "d: d.weight"}));
}

TEST(AssignUnits, TiedParameterBelongsToItsFirstUseAndIsReadInBoth) {
  Graph g;
  Builder &b = g.b;
  Value *x = g.input("x", {2, 3});
  Value *tied = g.parameter("wte.weight", {3, 3});
  Value *y = b.matmul(x, tied);
  for (const char *name : {"h.0.mlp.weight", "h.1.mlp.weight"})
    y = b.matmul(y, g.parameter(name, {3, 3}));
  y = b.mul(y, b.broadcast(g.parameter("ln_f.weight", {3}), {2, 3}));
  g.result(b.matmul(y, tied, false, true));
  g.run({&assignUnits});
  EXPECT_EQ(g.module.parameter("wte.weight")->unit, "wte");
  std::vector<int32_t> readIn;
  for (Node *node : g.function)
    if (node->op() == Op::read && node->get<StateAttributes>().state.name == "wte.weight")
      readIn.push_back(node->unit);
  EXPECT_EQ(readIn, (std::vector<int32_t>{0, 3}));
}

TEST(AssignUnits, ScopesPlaceNodesAndUnusedParametersFollowTheirBlock) {
  Graph g;
  Builder &b = g.b;
  Parameter unused;
  unused.name = "h.0.unused.weight";
  unused.type = Type(DType::f32, {1});
  Value *y = g.input("x", {2, 3});
  for (const char *block : {"h.0", "h.1"}) {
    std::string path = block;
    b.setSource(path + ".mlp|node_" + path);
    y = b.matmul(y, g.parameter(path + ".mlp.weight", {3, 3}));
    b.setSource(path + "|node_act_" + path);
    y = b.unary(Op::relu, y);
  }
  g.module.parameters.push_back(unused);
  g.result(y);
  g.runBlindly({&assignUnits});
  EXPECT_EQ(y->definer()->unit, 1);
  EXPECT_EQ(y->definer()->section, (Section{1, Phase::forward}));
  EXPECT_EQ(g.module.parameter("h.0.unused.weight")->unit, "h.0");
  EXPECT_EQ(g.module.units[0].name, "h.0");
}

} // namespace
} // namespace fsdpc
