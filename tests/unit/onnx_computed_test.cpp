// Values that the exporter computed elementwise from a parameter are inverted to the parameter, or refused with the
// cause.
#include "frontend/onnx/computed_chain.h"
#include "frontend/onnx/source_line.h"
#include "tests/frontend/exported_checks.h"
#include "gmock/gmock.h"

namespace fsdpc {

namespace {

using testing::HasSubstr;

const std::vector<float> twelve = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

/// Adds to sumWith's model the line that its node was traced from.
ExportedModel sumOfLine(llvm::StringRef line, llvm::StringRef folded, llvm::ArrayRef<std::string> sources) {
  ExportedModel model = sumWith(folded, twelve, sources);
  model.source(*model.graph().mutable_node(0), line);
  return model;
}

std::vector<double> parameterValues(ExportedModel &model, llvm::StringRef name) {
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  if (!imported) {
    ADD_FAILURE() << llvm::toString(imported.takeError());
    return {};
  }
  EXPECT_EQ(valuesAtZero(*imported, {2, 2, 3}), std::vector<double>(twelve.begin(), twelve.end()));
  return weightsOf(*imported)[name.str()].values;
}

TEST(OnnxComputed, ANumberOfTheSourceLineIsTakenOffAgain) {
  ExportedModel model = sumOfLine("return x + (1.0 + self.scale.float())", "add_6", {"scale", "val_3"});
  EXPECT_THAT(parameterValues(model, "scale"), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  ExportedModel difference = sumOfLine("y = f(x, 1 - self.scale)", "sub", {"scale", "val_3"});
  EXPECT_THAT(parameterValues(difference, "scale"),
              testing::ElementsAre(0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11));
}

TEST(OnnxComputed, ANumberThatNothingTellsIsRefused) {
  ExportedModel without = sumWith("add_6", twelve, {"scale", "val_3"});
  EXPECT_THAT(errorOf(without),
              HasSubstr("'scale' was computed into 'add_6' (add), and the file does not hold the number of 'add'"));
  ExportedModel other = sumOfLine("return x + (2.0 * self.scale)", "add_6", {"scale", "val_3"});
  EXPECT_THAT(errorOf(other), HasSubstr("does not hold the number"));
}

TEST(OnnxComputed, ANumberOfTheFileIsDividedByAgain) {
  ExportedModel model = sumWith("mul_3", twelve, {"bias", "val_4"});
  model.initializer("val_4", {}, {0.25});
  EXPECT_THAT(parameterValues(model, "bias"), testing::ElementsAre(4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48));
}

TEST(OnnxComputed, StepsInAnOrderThatNothingTellsAreRefused) {
  ExportedModel model = sumWith("view", twelve, {"bias", "add", "mul", "val_4", "val_5"});
  model.initializer("val_4", {}, {0.25});
  model.initializer("val_5", {}, {3});
  EXPECT_THAT(errorOf(model),
              HasSubstr("'bias' was computed into 'view' (add, mul), and several orders of the steps fit"));
}

TEST(OnnxComputed, WhatHasNoInverseIsNamed) {
  ExportedModel clamped = sumWith("exp", twelve, {"scale", "clamp", "val_4"});
  EXPECT_THAT(errorOf(clamped), HasSubstr("'scale' was computed into 'exp' (clamp, exp), and clamp has no inverse"));
  EXPECT_THAT(errorOf(clamped), HasSubstr("optimize=False"));
  ExportedModel standardized = sumWith("view", twelve, {"weight", "getitem"});
  EXPECT_THAT(errorOf(standardized), HasSubstr("batch_norm standardizes weights"));
}

/// x * mix + exp(x) * (1 - mix), where the file stores mix and 1 - mix.
ExportedModel mixture(llvm::ArrayRef<std::string> parameters) {
  ExportedModel model(parameters);
  model.input("x", {2, 3});
  model.output("add", {2, 3});
  model.initializer("a.mix", {3}, {0.5, 0.25, 1});
  model.initializer("val_6", {}, {1});
  model.folded("sub", {3}, {0.5, 0.75, 0}, {"a.mix", "scalar_tensor_default", "val_6"});
  model.node("Mul", {"x", "a.mix"}, "mul", "a", "aten.mul.Tensor](args = (%x, %p_a_mix)");
  model.node("Exp", {"x"}, "exp", "a", "aten.exp.default](args = (%x)");
  model.node("Mul", {"exp", "sub"}, "mul_1", "a", "aten.mul.Tensor](args = (%exp, %sub)");
  model.node("Add", {"mul", "mul_1"}, "add", "a", "aten.add.Tensor](args = (%mul, %mul_1)");
  return model;
}

TEST(OnnxComputed, WhatWasComputedFromAParameterInTheFileReadsItAgain) {
  ExportedModel model = mixture({"a.mix"});
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_EQ(imported->parameters.size(), 1u);
  EXPECT_EQ(weightsOf(*imported)["a.mix"].values, std::vector<double>({0.5, 0.25, 1}));
  EXPECT_EQ(valuesAtZero(*imported, {2, 3}), std::vector<double>({0.5, 0.75, 0, 0.5, 0.75, 0}));
}

TEST(OnnxComputed, AnEqualResultThatAnotherModuleReadsIsRefused) {
  ExportedModel model = mixture({"a.mix", "b.mix"});
  model.graph().mutable_output(0)->set_name("add_1");
  model.node("Mul", {"add", "a.mix"}, "mul_2", "b", "aten.mul.Tensor](args = (%add, %p_b_mix)");
  model.node("Mul", {"add", "sub"}, "mul_3", "b", "aten.mul.Tensor](args = (%add, %sub_7)");
  model.node("Add", {"mul_2", "mul_3"}, "add_1", "b", "aten.add.Tensor](args = (%mul_2, %mul_3)");
  EXPECT_THAT(errorOf(model), HasSubstr("'node_mul_3' reads it for another parameter of equal values"));
}

TEST(OnnxComputed, AProductWithAZeroStateIsAConstant) {
  ExportedModel model({"a"});
  model.input("x", {2, 3});
  model.output("mul_1", {2, 3});
  model.folded("mul", {2, 3}, {0, 0, 0, 0, 0, 0}, {"a", "sigmoid", "zeros_like", "select", "val_2"});
  model.folded("sigmoid_1", {3}, {0.5, 0.25, 0.75}, {"a"});
  model.node("Add", {"x", "mul"}, "add", "", "aten.add.Tensor](args = (%x, %mul)");
  model.node("Mul", {"add", "sigmoid_1"}, "mul_1", "", "aten.mul.Tensor](args = (%add, %sigmoid_1)");
  // The product may be zero because the parameter is.
  EXPECT_THAT(errorOf(model), HasSubstr("'a' was computed into 'mul'"));
  model.graph().mutable_initializer(1)->set_float_data(0, 0.625F);
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  ASSERT_EQ(imported->parameters.size(), 1u);
  EXPECT_NEAR(weightsOf(*imported)["a"].values[1], std::log(1.0 / 3), 1e-6);
}

/// linear(0) + x W + b, where the file stores b in place of linear(0).
ExportedModel firstStep(llvm::ArrayRef<float> weight, llvm::ArrayRef<float> result) {
  ExportedModel model({"r.weight_hh_l0", "r.bias_hh_l0"});
  model.input("x", {2, 2});
  model.output("add_1", {2, 2});
  model.initializer("r.bias_hh_l0", {2}, {3, 5});
  model.folded("val_79", {2, 2}, weight, {"r.weight_hh_l0"});
  model.folded("linear_1", {2, 2}, result, {"r.weight_hh_l0", "r.bias_hh_l0", "zeros", "getitem", "val_2"});
  model.node("MatMul", {"x", "val_79"}, "val_80", "r", "aten.linear.default](args = (%x, %p_r_weight_hh_l0)");
  model.node("Add", {"val_80", "r.bias_hh_l0"}, "add", "r",
             "aten.linear.default](args = (%x, %p_r_weight_hh_l0, %p_r_bias_hh_l0)");
  model.node("Add", {"add", "linear_1"}, "add_1", "r", "aten.add.Tensor](args = (%add, %linear_1)");
  return model;
}

TEST(OnnxComputed, ALinearLayerOfAZeroStateIsItsBias) {
  ExportedModel model = firstStep({1, 2, 3, 4}, {3, 5, 3, 5});
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_EQ(imported->parameters.size(), 2u);
  EXPECT_EQ(valuesAtZero(*imported, {2, 2}), std::vector<double>({6, 10, 6, 10}));
}

TEST(OnnxComputed, AStateThatMayNotBeZeroIsRefused) {
  ExportedModel dependent = firstStep({1, 2, 2, 4}, {3, 5, 3, 5});
  EXPECT_THAT(errorOf(dependent), HasSubstr("was computed, with others, into 'linear_1' (getitem, linear)"));
  ExportedModel other = firstStep({1, 2, 3, 4}, {3, 5, 3, 6});
  EXPECT_THAT(errorOf(other), HasSubstr("was computed, with others, into 'linear_1'"));
}

TEST(OnnxComputed, ANumberHasToStandAloneBesideTheAttribute) {
  const ScalarOperand onePlus = {'+', 1, true}, minusTwo = {'-', 2, false};
  EXPECT_EQ(findScalarOperand("output = output * (1.0 + self.weight.float())", "weight"), onePlus);
  EXPECT_EQ(findScalarOperand("return F.layer_norm(x, self.shape, self.weight.to(x.dtype) - 2, self.bias)", "weight"),
            minusTwo);
  EXPECT_EQ(findScalarOperand("w = 1 + self.weight", "weight"), onePlus);
  for (llvm::StringRef line :
       {"y = x * 1.0 + self.weight", "y = 1 + self.weight * x", "y = 1 + self.weight_2", "y = one + self.weight",
        "y = self.weight ** 2", "y = (1 + self.weight) * (2 + self.weight)", "y += 1 + self.weight",
        "y = 1 + self.weight[0]", "y = 1 + self.norm.weight", "y = x", "y = inf + self.weight", "", "1 + self.weight("})
    EXPECT_EQ(findScalarOperand(line, "weight"), std::nullopt) << line.str();
}

TEST(OnnxComputed, EveryStepIsUndone) {
  for (llvm::StringRef operation : {"neg", "exp", "sigmoid", "tanh", "softplus", "reciprocal", "log", "sqrt"}) {
    const ComputedChain chain = {{invertibleOp(operation).str(), std::nullopt, false}};
    const std::vector<float> stored = {evaluateChain(chain, 0.3F), evaluateChain(chain, 1.7F)};
    std::optional<std::vector<float>> back = computeBack(chain, stored);
    ASSERT_TRUE(back) << operation.str();
    EXPECT_NEAR((*back)[1], 1.7F, 1e-6) << operation.str();
  }
  for (llvm::StringRef op : {"Add", "Sub", "Mul", "Div"})
    for (bool isFirst : {false, true}) {
      const ComputedChain chain = {{op.str(), 3.0F, isFirst}};
      std::optional<std::vector<float>> back = computeBack(chain, {evaluateChain(chain, 1.7F)});
      ASSERT_TRUE(back) << op.str();
      EXPECT_NEAR((*back)[0], 1.7F, 1e-6) << op.str();
    }
}

TEST(OnnxComputed, ValuesOutsideOfTheRangeOfAStepHaveNoParameter) {
  EXPECT_FALSE(computeBack({{"Sigmoid", std::nullopt, false}}, {1.5F}));
  EXPECT_FALSE(computeBack({{"Sigmoid", std::nullopt, false}}, {1.0F}));
  EXPECT_FALSE(computeBack({{"Exp", std::nullopt, false}}, {-1.0F}));
  EXPECT_FALSE(computeBack({{"Mul", 0.0F, false}}, {1.0F}));
  EXPECT_FALSE(gives({{"Add", 1.0F, false}}, {1.0F, 2.0F}, {2.0F, 3.5F}));
}

} // namespace

} // namespace fsdpc
