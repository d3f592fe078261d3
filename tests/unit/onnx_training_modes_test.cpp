// Nodes that --train_mode turns off in files without Dropout, and nodes that exporters omit from a model in training
// mode.
#include "frontend/onnx/drawn_masks.h"
#include "ir/ops/attributes.h"
#include "tests/frontend/exported_model.h"
#include "tests/frontend/onnx_text.h"
#include "gtest/gtest.h"

namespace fsdpc {
namespace {

// ---- dropout in other spellings

#define RATE "p = Constant<value = float {0.8}>() "
#define DRAWN "s = Constant<value = int64[2] {2, 1}>() e = ConstantOfShape(s) u = RandomUniformLike(e) "
#define BERNOULLI RATE DRAWN "l = Less(u, p) b = Cast<to = 1>(l) "

struct SpellingCase {
  const char *name;
  const char *nodes; ///< y from x, [2, 3]
};

const SpellingCase spellings[] = {
    {"StochasticDepth", BERNOULLI "m = Div(b, p) y = Mul(x, m)"},
    {"StochasticDepthOnTheLeft", BERNOULLI "m = Div(b, p) y = Mul(m, x)"},
    {"FloorOfASum", RATE DRAWN "a = Add(u, p) m = Floor(a) d = Div(x, p) y = Mul(d, m)"},
    {"FloorOfASumTheOtherWayRound", RATE DRAWN "a = Add(p, u) m = Floor(a) d = Div(x, p) y = Mul(m, d)"},
    {"DivisionOfTheProduct", BERNOULLI "z = Mul(x, b) y = Div(z, p)"},
    {"MaskOfTheWholeShape",
     RATE "u = RandomUniformLike(x) l = Less(u, p) b = Cast<to = 1>(l) m = Div(b, p) y = Mul(x, m)"},
    {"OpBernoulli", RATE "s = Constant<value = int64[2] {2, 1}>() r = Expand(p, s) b = Bernoulli(r) m = Div(b, p) "
                         "y = Mul(x, m)"},
    {"ComparisonFromAbove", RATE DRAWN "q = Constant<value = float {0.2}>() l = Greater(u, q) b = Cast<to = 1>(l) "
                                       "m = Div(b, p) y = Mul(x, m)"},
    {"ComparisonNegated",
     RATE DRAWN "q = Constant<value = float {0.2}>() l = Less(u, q) k = Not(l) b = Cast<to = 1>(k) "
                "f = Constant<value = float {1.25}>() m = Mul(b, f) y = Mul(x, m)"},
    {"Choice", RATE "z = Constant<value = float {0.0}>() u = RandomUniformLike(x) l = Less(u, p) d = Div(x, p) "
                    "y = Where(l, d, z)"},
    {"ChoiceOfZero", RATE "z = Constant<value = float {0.0}>() q = Constant<value = float {0.2}>() "
                          "u = RandomUniformLike(x) l = Less(u, q) d = Div(x, p) y = Where(l, z, d)"},
};

std::ostream &operator<<(std::ostream &out, const SpellingCase &spelling) { return out << spelling.name; }

std::string graphOf(llvm::StringRef nodes) { return "(float[2,3] x) => (float[2,3] y) { " + nodes.str() + " }"; }

class DropoutSpelling : public testing::TestWithParam<SpellingCase> {};

TEST_P(DropoutSpelling, IsTheIdentityInEvaluationAndDrawsInTraining) {
  llvm::Expected<ImportedModel> off = importText(graphOf(GetParam().nodes)),
                                on = importText(graphOf(GetParam().nodes), "\"\" : 20", TrainMode::keep);
  ASSERT_TRUE(static_cast<bool>(off)) << llvm::toString(off.takeError());
  ASSERT_TRUE(static_cast<bool>(on)) << llvm::toString(on.takeError());
  EXPECT_TRUE(drawingNodes(*off->module->function(FunctionKind::forward)).empty());
  EXPECT_EQ(drawingNodes(*on->module->function(FunctionKind::forward)).size(), 1u);
  EXPECT_TRUE(off->notes.empty());
  HostTensor x = inputOf(*off->module, 1, 1);
  EXPECT_LT(deviation(runForward(*off->module, {}, {{"x", x}})["y"], x), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, DropoutSpelling, testing::ValuesIn(spellings),
                         [](const auto &info) { return std::string(info.param.name); });

/// EXPECTs the note about a graph that draws random numbers in evaluation.
void expectDraws(const std::string &nodes) {
  llvm::Expected<ImportedModel> imported = importText(graphOf(nodes));
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_FALSE(drawingNodes(*imported->module->function(FunctionKind::forward)).empty());
  ASSERT_EQ(imported->notes.size(), 1u);
  EXPECT_NE(imported->notes[0].find("draw new random numbers for every sample and step"), std::string::npos);
}

TEST(DrawnMasks, WithoutTheDivisionStayAndAreNamed) { expectDraws(BERNOULLI "y = Mul(x, b)"); }

TEST(DrawnMasks, DividedByAnotherRateStayAndAreNamed) {
  expectDraws(BERNOULLI "q = Constant<value = float {0.5}>() m = Div(b, q) y = Mul(x, m)");
}

TEST(DrawnMasks, OfANormalDistributionStayAndAreNamed) {
  expectDraws(RATE "u = RandomNormalLike(x) l = Less(u, p) b = Cast<to = 1>(l) m = Div(b, p) y = Mul(x, m)");
}

TEST(DrawnMasks, ThatTwoReadersTakeDifferentlyStayForTheOneThatIsNoDropout) {
  expectDraws(BERNOULLI "m = Div(b, p) z = Mul(x, m) y = Add(z, b)");
}

void addClasses(onnx::NodeProto &node, llvm::StringRef name) {
  onnx::StringStringEntryProto &entry = *node.add_metadata_props();
  entry.set_key("pkg.torch.onnx.class_hierarchy");
  entry.set_value(("['model.Net', '" + name + "', 'aten.mul.Tensor']").str());
}

/// x times a mask of ones and zeros, in a module of the class.
std::string withPlainMask(ExportedModel &model, llvm::StringRef moduleClass) {
  model.input("x", {2, 3});
  model.output("y", {2, 3});
  model.initializer("val_0", {}, {0.8F});
  const std::string statement = "aten.bernoulli.p](args = (%x, 0.8)";
  model.node("RandomUniformLike", {"x"}, "u", "drop", statement);
  model.node("Less", {"u", "val_0"}, "l", "drop", statement);
  model.integer(model.node("Cast", {"l"}, "b", "drop", statement), "to", onnx::TensorProto::FLOAT);
  addClasses(model.node("Mul", {"x", "b"}, "y", "drop", "aten.mul.Tensor](args = (%x, %b)"), moduleClass);
  return model.save();
}

ImportOptions evaluation() {
  ImportOptions options;
  options.microBatchSize = 2;
  options.trainMode = TrainMode::eval;
  return options;
}

TEST(DrawnMasks, WithoutTheDivisionGoInAModuleThatIsADropout) {
  ExportedModel model({});
  llvm::Expected<ImportedModel> imported = importOnnx(withPlainMask(model, "timm.layers.drop.DropPath"), evaluation());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_TRUE(imported->parameters.empty());
  EXPECT_TRUE(drawingNodes(*imported->module->function(FunctionKind::forward)).empty());
}

TEST(DrawnMasks, WithoutTheDivisionStayInAnyOtherModule) {
  ExportedModel model({});
  llvm::Expected<ImportedModel> imported = importOnnx(withPlainMask(model, "model.RandomMask"), evaluation());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_FALSE(drawingNodes(*imported->module->function(FunctionKind::forward)).empty());
}

TEST(Dropout, OfEverythingLeavesZerosInTrainingAndAllInEvaluation) {
  const char *nodes = "p = Constant<value = float {1.0}>() t = Constant<value = bool {1}>() y = Dropout(x, p, t)";
  for (TrainMode mode : {TrainMode::keep, TrainMode::eval}) {
    llvm::Expected<ImportedModel> imported = importText(graphOf(nodes), "\"\" : 20", mode);
    ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
    HostTensor x = inputOf(*imported->module, 1, 0);
    HostTensor y = runForward(*imported->module, {}, {{"x", x}})["y"];
    EXPECT_EQ(y.values, std::vector<double>(6, mode == TrainMode::eval ? 1 : 0));
  }
}

// ---- what the exporter writes for evaluation

bool isTraining(const Module &module) {
  for (const Node *node : *module.function(FunctionKind::forward))
    if (node->op() == Op::batchNorm)
      return node->get<BatchNormAttributes>().training;
  ADD_FAILURE() << "no batch norm";
  return false;
}

/// A BatchNormalization for inference, from a statement with `training` as its sixth argument.
std::string withBatchNorm(ExportedModel &model, llvm::StringRef training) {
  model.input("x", {2, 3});
  model.output("y", {2, 3});
  for (const char *name : {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"})
    model.initializer(name, {3}, {1, 2, 3});
  model.node(
      "BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, "y", "bn",
      ("aten._native_batch_norm_legit_functional.default](args = (%x, %p_bn_weight, %p_bn_bias, %b_bn_running_mean, "
       "%b_bn_running_var, " +
       training + ", 0.1, 1e-05)")
          .str());
  return model.save();
}

constexpr TrainMode allModes[] = {TrainMode::keep, TrainMode::train, TrainMode::eval};

TEST(TrainingModes, OfABatchNormAreThoseOfTheFileAndANoteSaysWhereTheModelHasAnother) {
  for (const char *traced : {"True", "False"})
    for (TrainMode mode : allModes) {
      ExportedModel model({"bn.weight", "bn.bias"});
      ImportOptions options = evaluation();
      options.trainMode = mode;
      llvm::Expected<ImportedModel> imported = importOnnx(withBatchNorm(model, traced), options);
      ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
      EXPECT_EQ(isTraining(*imported->module), mode == TrainMode::train);
      const bool isOther = mode == TrainMode::keep && llvm::StringRef(traced) == "True";
      EXPECT_EQ(imported->notes.size(), isOther ? 1u : 0u);
    }
}

TEST(TrainingModes, TheDropoutOfAttentionIsRestoredToTrainAndElseItsAbsenceIsSaid) {
  for (const char *ending : {", 0.5)", ", 0.0)", ")"})
    for (TrainMode mode : allModes) {
      ExportedModel model({});
      model.input("x", {2, 3});
      model.output("y", {2, 3});
      model.node("Softmax", {"x"}, "y", "attn",
                 std::string("aten.scaled_dot_product_attention.default](args = (%q, %k, %v, None") + ending);
      ImportOptions options = evaluation();
      options.trainMode = mode;
      llvm::Expected<ImportedModel> imported = importOnnx(model.save(), options);
      ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
      const bool isDropped = llvm::StringRef(ending) == ", 0.5)";
      EXPECT_EQ(drawingNodes(*imported->module->function(FunctionKind::forward)).size(),
                isDropped && mode == TrainMode::train ? 1u : 0u);
      EXPECT_EQ(imported->notes.size(), isDropped && mode != TrainMode::eval ? 1u : 0u);
    }
}

} // namespace
} // namespace fsdpc
