// Every parameter that the exporter names trains as its author wrote it, or the import refuses the model and names it.
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/model.h"
#include "tests/frontend/exported_checks.h"
#include "gmock/gmock.h"

namespace fsdpc {

namespace {

TEST(OnnxComplete, WhatWasExpandedAlongTheBatchIsOneParameter) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
  ExportedModel model = sumWith("expand", values, {"position", "val_1"});
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  const Parameter *position = parameterOf(*imported, "position");
  ASSERT_TRUE(position);
  EXPECT_EQ(Shape(position->type.shape()), Shape({1, 2, 3}));
  EXPECT_EQ(valuesAtZero(*imported, {2, 2, 3}), std::vector<double>(values.begin(), values.end()));
}

TEST(OnnxComplete, ZerosExpandedAlongTheBatchOnlyAreOneParameter) {
  ExportedModel model(llvm::ArrayRef<std::string>("cls_token"));
  model.input("x", {2, 2, 3});
  model.output("cat", {2, 3, 3});
  model.folded("expand", {2, 1, 3}, std::vector<float>(6), {"cls_token", "val_1"});
  model.integer(model.node("Concat", {"expand", "x"}, "cat", "", "aten.cat.default](args = ([%expand, %x], 1)"), "axis",
                1);
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  ASSERT_TRUE(parameterOf(*imported, "cls_token"));
  EXPECT_EQ(Shape(parameterOf(*imported, "cls_token")->type.shape()), Shape({1, 1, 3}));
}

TEST(OnnxComplete, EqualRowsThatMayBeOneOrSeveralAreRefused) {
  ExportedModel model = sumWith("expand", std::vector<float>(12), {"register_tokens", "val_1"});
  EXPECT_THAT(errorOf(model),
              testing::HasSubstr("'register_tokens' was stored as 'expand', whose values are all equal"));
}

TEST(OnnxComplete, EqualValuesExpandedAlongNoSampleAreRefused) {
  // [1] expanded to [3] gives the same file as [3] itself.
  ExportedModel model(llvm::ArrayRef<std::string>("gate"));
  model.input("x", {2, 2, 3});
  model.output("mul", {2, 2, 3});
  model.folded("expand", {3}, {1, 1, 1}, {"gate", "val_1"});
  model.node("Mul", {"x", "expand"}, "mul", "", "aten.mul.Tensor](args = (%x, %expand)");
  EXPECT_THAT(errorOf(model), testing::HasSubstr("'gate' was stored as 'expand', whose values are all equal"));
}

/// Two tokens of zeros before x, stored as one value. The second is computed from one of `others`.
ExportedModel twoTokens(llvm::ArrayRef<std::string> others) {
  std::vector<std::string> parameters = {"m.cls_token"};
  parameters.insert(parameters.end(), others.begin(), others.end());
  ExportedModel model(parameters);
  model.input("x", {2, 2, 3});
  model.folded("expand", {2, 1, 3}, std::vector<float>(6), {"m.cls_token", "val_1"});
  model.integer(model.node("Concat", {"expand", "expand", "x"}, "cat", "m",
                           "aten.cat.default](args = ([%expand, %expand_1, %x], 1)"),
                "axis", 1);
  return model;
}

/// The result for x = 0 if the parameter is all ones. It shows the positions that read the parameter.
std::vector<double> resultWithOnesIn(const ImportedModel &imported, llvm::StringRef parameter) {
  HostTensors weights = weightsOf(imported), batch;
  batch["x"] = HostTensor(Type(DType::f32, Shape{2, 2, 3}));
  std::fill(weights[parameter.str()].values.begin(), weights[parameter.str()].values.end(), 1.0);
  HostTensors results = runForward(*imported.module, weights, batch);
  return results.empty() ? std::vector<double>() : results.begin()->second.values;
}

TEST(OnnxComplete, TwoTokensThatOneNodeReadsAreTwoParameters) {
  ExportedModel model = twoTokens({"m.distillation_token"});
  model.output("cat", {2, 4, 3});
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  for (const char *name : {"m.cls_token", "m.distillation_token"}) {
    ASSERT_TRUE(parameterOf(*imported, name)) << name;
    EXPECT_EQ(Shape(parameterOf(*imported, name)->type.shape()), Shape({1, 1, 3}));
  }
  const std::vector<double> first = {1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                            second = {0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(resultWithOnesIn(*imported, "m.cls_token"), first);
  EXPECT_EQ(resultWithOnesIn(*imported, "m.distillation_token"), second);
}

TEST(OnnxComplete, OtherReadersOfTheSecondTokenReadItToo) {
  ExportedModel model = twoTokens({"m.distillation_token"});
  model.output("add", {2, 4, 3});
  model.node("Add", {"cat", "expand"}, "add", "m", "aten.add.Tensor](args = (%cat, %expand_1)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  const std::vector<double> sum = {1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(resultWithOnesIn(*imported, "m.distillation_token"), sum);
}

TEST(OnnxComplete, ASecondTokenThatMayBeOneOfTwoParametersIsRefused) {
  ExportedModel model = twoTokens({"m.distillation_token", "m.mask_token"});
  model.output("cat", {2, 4, 3});
  EXPECT_THAT(errorOf(model), testing::HasSubstr("'m.distillation_token' was merged with a parameter of equal values"));
}

TEST(OnnxComplete, RowsThatOccurAgainAreRowsOfOneTable) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 4, 5, 6, 1, 2, 3};
  ExportedModel model = sumWith("embedding", values, {"table.weight", "ids"});
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  ASSERT_TRUE(parameterOf(*imported, "table.weight"));
  EXPECT_EQ(Shape(parameterOf(*imported, "table.weight")->type.shape()), Shape({2, 3}));
  EXPECT_EQ(valuesAtZero(*imported, {2, 2, 3}), std::vector<double>(values.begin(), values.end()));
}

TEST(OnnxComplete, RowsMovedBehindAreFoundOnAnyAxis) {
  // Elements of a row are along axis 1: rows (1, 2), (3, 4), (1, 2) and so on.
  const std::vector<float> values = {1, 3, 1, 2, 4, 2, 3, 1, 3, 4, 2, 4};
  ExportedModel model(llvm::ArrayRef<std::string>("table.weight"));
  model.input("x", {2, 2, 3});
  model.output("add", {2, 2, 3});
  model.folded("permute", {2, 2, 3}, values, {"table.weight", "embedding", "abs", "ids"});
  model.node("Add", {"x", "permute"}, "add", "", "aten.add.Tensor](args = (%x, %permute)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  ASSERT_TRUE(parameterOf(*imported, "table.weight"));
  EXPECT_EQ(Shape(parameterOf(*imported, "table.weight")->type.shape()), Shape({2, 2}));
  EXPECT_EQ(valuesAtZero(*imported, {2, 2, 3}), std::vector<double>(values.begin(), values.end()));
}

TEST(OnnxComplete, RelativePositionsAreNumberedAsVisionModelsDo) {
  // Positions 0 and 1 of a sequence: offsets 0, -1, 1 and 0 are rows 1, 0, 2 and 1, whichever occurs first.
  const std::vector<float> values = {5, 6, 3, 4, 7, 8, 5, 6};
  ExportedModel model(llvm::ArrayRef<std::string>("table"));
  model.input("x", {2, 2, 2});
  model.output("add", {2, 2, 2});
  model.folded("view", {2, 2, 2}, values, {"table", "index"});
  model.node("Add", {"x", "view"}, "add", "", "aten.add.Tensor](args = (%x, %view)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_EQ(weightsOf(*imported)["table"].values, std::vector<double>({3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(valuesAtZero(*imported, {2, 2, 2}), std::vector<double>(values.begin(), values.end()));
}

TEST(OnnxComplete, RelativePositionsOfOneHeadAreATableOfOneColumn) {
  // The offsets between the positions of a 1 x 4 window, for one head: 7 values in 16 positions.
  std::vector<float> values;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      values.push_back(static_cast<float>(10 + i - j));
  ExportedModel model(llvm::ArrayRef<std::string>("table"));
  model.input("x", {2, 4, 4});
  model.output("add", {2, 4, 4});
  model.folded("unsqueeze", {1, 4, 4}, values, {"table", "index", "permute"});
  model.node("Add", {"x", "unsqueeze"}, "add", "", "aten.add.Tensor](args = (%x, %unsqueeze)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_EQ(weightsOf(*imported)["table"].values, std::vector<double>({7, 8, 9, 10, 11, 12, 13}));
}

TEST(OnnxComplete, RowsRepeatedForEveryHeadOfEverySampleAreOneTable) {
  // table.repeat(2, 1, 1) of 2 samples, [2, 2, 2], as [4, 2]: two heads of each.
  ExportedModel model(llvm::ArrayRef<std::string>("table"));
  model.input("x", {2, 2, 2});
  model.output("add", {4, 2});
  model.folded("view", {4, 2}, {1, 2, 3, 4, 1, 2, 3, 4}, {"table", "repeat"});
  model.integer(model.node("Flatten", {"x"}, "reshape", "", "aten.view.default](args = (%x, [4, 2])"), "axis", 2);
  model.node("Add", {"reshape", "view"}, "add", "", "aten.add.Tensor](args = (%reshape, %view)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_EQ(weightsOf(*imported)["table"].values, std::vector<double>({1, 2, 3, 4}));
  EXPECT_EQ(valuesAtZero(*imported, {2, 2, 2}), std::vector<double>({1, 2, 3, 4, 1, 2, 3, 4}));
}

/// q(x) + k(x), with biases that the model concatenated and split, and that the exporter stored as one.
TEST(OnnxComplete, BiasesThatWereJoinedAreTheLayersAgain) {
  ExportedModel model({"q.weight", "q.bias", "k.weight", "k.bias"});
  model.input("x", {2, 2});
  model.output("add", {2, 2});
  model.initializer("q.weight", {2, 2}, {1, 2, 3, 4});
  model.initializer("k.weight", {2, 2}, {5, 6, 7, 8});
  model.folded("cat", {4}, {1, 2, 3, 4}, {"k.bias", "q.bias"});
  onnx::NodeProto &split = model.node("Split", {"cat"}, "part_0", "", "");
  split.add_output("part_1");
  split.clear_metadata_props();
  model.integer(split, "num_outputs", 2);
  model.node("MatMul", {"x", "q.weight"}, "val_1", "", "aten.linear.default](args = (%x, %p_q_weight, %getitem)");
  model.node("Add", {"val_1", "part_0"}, "linear", "", "aten.linear.default](args = (%x, %p_q_weight, %getitem)");
  model.node("MatMul", {"x", "k.weight"}, "val_2", "", "aten.linear.default](args = (%x, %p_k_weight, %getitem_1)");
  model.node("Add", {"val_2", "part_1"}, "linear_1", "", "aten.linear.default](args = (%x, %p_k_weight, %getitem_1)");
  model.node("Add", {"linear", "linear_1"}, "add", "", "aten.add.Tensor](args = (%linear, %linear_1)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_EQ(weightsOf(*imported)["q.bias"].values, std::vector<double>({1, 2}));
  EXPECT_EQ(weightsOf(*imported)["k.bias"].values, std::vector<double>({3, 4}));
}

TEST(OnnxComplete, WhatASliceLeftOutIsNamed) {
  ExportedModel model = sumWith("view", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {"position", "slice_1"});
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_THAT(imported->remarks,
              testing::Contains(testing::HasSubstr("'position' was stored as 'view', after a slice")));
}

TEST(OnnxComplete, AParameterThatIsReadDetachedIsRefused) {
  EXPECT_THAT(errorOf(sumWith("view", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {"position", "detach"})),
              testing::HasSubstr("'position' was detached into 'view'"));
}

/// x * a + x * b with both scales stored as one; the second's statement quotes the other.
ExportedModel twoScales(llvm::ArrayRef<std::string> parameters) {
  ExportedModel model(parameters);
  model.input("x", {2, 3, 2});
  model.output("add", {2, 3, 2});
  model.folded("unsqueeze", {3, 1}, {4, 4, 4}, {"m.scale_1"});
  model.node("Mul", {"unsqueeze", "x"}, "mul", "m", "aten.mul.Tensor](args = (%unsqueeze, %x)");
  model.node("Mul", {"unsqueeze", "mul"}, "mul_1", "m", "aten.mul.Tensor](args = (%unsqueeze_3, %mul)");
  model.node("Add", {"mul", "mul_1"}, "add", "m", "aten.add.Tensor](args = (%mul, %mul_1)");
  return model;
}

TEST(OnnxComplete, EqualScalesOfOneModuleAreTwoParameters) {
  llvm::Expected<ImportedModel> imported = importOnnx(twoScales({"m.scale_1", "m.scale_2"}).save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_TRUE(parameterOf(*imported, "m.scale_1"));
  EXPECT_TRUE(parameterOf(*imported, "m.scale_2"));
  // A single scale that its module reads twice stays one parameter.
  llvm::Expected<ImportedModel> shared = importOnnx(twoScales({"m.scale_1"}).save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(shared)) << llvm::toString(shared.takeError());
  EXPECT_EQ(shared->parameters.size(), 1u);
}

TEST(OnnxComplete, EqualScalesThatNothingTellsApartAreRefused) {
  EXPECT_THAT(errorOf(twoScales({"m.scale_1", "m.scale_2", "m.scale_3"})),
              testing::HasSubstr("'m.scale_2' was merged with a parameter of equal values"));
}

TEST(OnnxComplete, WhatWasComputedIsRefusedUnlessAccepted) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  ExportedModel model = sumWith("mul_1", values, {"scale", "val_1"});
  const std::string error = errorOf(model);
  EXPECT_THAT(error, testing::HasSubstr("'scale' was computed into 'mul_1' (mul)"));
  EXPECT_THAT(error, testing::HasSubstr("optimize=False"));
  ImportOptions accepting = batchOfTwo();
  accepting.acceptChanged = "scal.";
  EXPECT_EQ(errorOf(model, accepting), "");
  accepting.acceptChanged = "scal";
  EXPECT_THAT(errorOf(model, accepting),
              testing::HasSubstr("the full name of no parameter that the exporter changed matches"));
}

TEST(OnnxComplete, NegatedExponentialsAreComputedBack) {
  ExportedModel model = sumWith("neg", {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12}, {"A_log", "exp"});
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  HostTensors weights = weightsOf(*imported);
  ASSERT_EQ(weights.count("A_log"), 1u);
  EXPECT_NEAR(weights["A_log"].values[11], std::log(12.0), 1e-6);
  std::vector<double> values = valuesAtZero(*imported, {2, 2, 3});
  ASSERT_EQ(values.size(), 12u);
  EXPECT_NEAR(values[11], -12, 1e-5);
}

TEST(OnnxComplete, WhatWasTracedApartTrainsOnlyIfSaid) {
  ExportedModel model({"encoder.weight", "fc.weight"});
  model.input("x", {2, 3});
  model.output("linear_1", {2, 2});
  model.initializer("encoder.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  model.initializer("fc.weight", {2, 2}, {1, 2, 3, 4});
  onnx::NodeProto &encoder = model.node("MatMul", {"x", "encoder.weight"}, "linear", "",
                                        "aten.linear.default](args = (%x, %p_encoder_weight)");
  onnx::StringStringEntryProto &source = *encoder.add_metadata_props();
  source.set_key("pkg.torch.onnx.stack_trace");
  source.set_value("File \"<eval_with_key>.60\", line 7, in forward");
  model.node("MatMul", {"linear", "fc.weight"}, "linear_1", "fc",
             "aten.linear.default](args = (%linear, %p_fc_weight)");
  const std::string error = errorOf(model);
  EXPECT_THAT(error, testing::HasSubstr("'encoder.weight'"));
  EXPECT_THAT(error, testing::HasSubstr("--frozen"));
  EXPECT_THAT(error, testing::Not(testing::HasSubstr("'fc.weight'")));
  ImportOptions frozen = batchOfTwo(), trainable = batchOfTwo();
  frozen.frozenRegex = "encoder[.].*";
  trainable.trainableRegex = ".*";
  EXPECT_EQ(errorOf(model, frozen), "");
  EXPECT_EQ(errorOf(model, trainable), "");
}

TEST(OnnxComplete, AFunctionWithADerivativeOfItsOwnIsRefusedUnlessAccepted) {
  ExportedModel model({"fc.weight"});
  model.input("x", {2, 3});
  model.output("linear", {2, 2});
  model.initializer("fc.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  onnx::NodeProto &node =
      model.node("MatMul", {"x", "fc.weight"}, "linear", "fc", "aten.linear.default](args = (%x, %p_fc_weight)");
  onnx::StringStringEntryProto &source = *node.add_metadata_props();
  source.set_key("pkg.torch.onnx.stack_trace");
  const std::string caller = "File \"model.py\", line 446, in forward\n    y = self.fc(x)\n";
  const std::string inside = "File \"model.py\", line 109, in forward\n    return x @ w";
  source.set_value(caller + inside);
  EXPECT_EQ(errorOf(model), "");
  source.set_value(caller + "  File \"model.py\", line 97, in forward\n    y = lib.Rounded.apply(\n  " + inside);
  EXPECT_THAT(errorOf(model), testing::HasSubstr("'Rounded' is a torch.autograd.Function"));
  // A function that is known to have the derivative of its forward pass.
  source.set_value(caller + "  File \"act.py\", line 9, in forward\n    return SwishAutoFn.apply(x)\n" +
                   "  File \"lib/timm/layers/activations_me.py\", line 37, in forward\n    return swish_fwd(x)");
  EXPECT_EQ(errorOf(model), "");
  source.set_value(caller + "  File \"model.py\", line 97, in forward\n    y = lib.Rounded.apply(\n  " + inside);
  ImportOptions accepted = batchOfTwo();
  accepted.acceptChanged = "Rounded";
  EXPECT_EQ(errorOf(model, accepted), "");
}

TEST(OnnxComplete, ABatchNormThatIsGoneBesideWhatRunsWasMerged) {
  ExportedModel model({"one.fc.weight", "two.bn.weight", "two.bn.bias", "two.fc.weight"});
  model.graph().mutable_metadata_props(0)->mutable_value()->append(
      "b_two_bn_running_mean: BUFFER target='two.bn.running_mean' persistent=True\n");
  model.input("x", {2, 2});
  model.output("linear_1", {2, 2});
  model.initializer("one.fc.weight", {2, 2}, {1, 2, 3, 4});
  model.node("MatMul", {"x", "one.fc.weight"}, "linear", "one.fc",
             "aten.linear.default](args = (%x, %p_one_fc_weight)");
  EXPECT_EQ(errorOf(model).find("two.bn"), std::string::npos); // all of `two` is unused
  model.initializer("two.fc.weight", {2, 2}, {5, 6, 7, 8});
  model.node("MatMul", {"linear", "two.fc.weight"}, "linear_1", "two.fc",
             "aten.linear.default](args = (%linear, %p_two_fc_weight)");
  EXPECT_THAT(errorOf(model), testing::HasSubstr("'two.bn.weight' has no node left"));
}

TEST(OnnxComplete, ANameThatTheFileStatesForAParameterInItIsNotUnread) {
  ExportedModel model({"table.weight", "head.weight", "spare.weight"});
  model.input("x", {2, 2});
  model.output("linear", {2, 2});
  model.initializer("head.weight", {2, 2}, {1, 2, 3, 4});
  model.node("MatMul", {"x", "head.weight"}, "linear", "head", "aten.linear.default](args = (%x, %p_head_weight)");
  llvm::Expected<ImportedModel> unstated = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(unstated)) << llvm::toString(unstated.takeError());
  EXPECT_THAT(notesOf(*unstated), testing::HasSubstr("nothing in the file reads 'table.weight', 'spare.weight'"));
  model.otherNames("table.weight\thead.weight\nspare.weight\tsaved.spare.weight");
  llvm::Expected<ImportedModel> stated = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(stated)) << llvm::toString(stated.takeError());
  EXPECT_THAT(notesOf(*stated), testing::HasSubstr("nothing in the file reads 'spare.weight' of the signature"));
}

/// The repaired graph, or the error.
struct Repaired {
  std::string error;
  onnx::GraphProto graph;

  bool stopsAt(llvm::StringRef value) const {
    for (const onnx::NodeProto &node : graph.node())
      if (!metadataOf(node, stopGradientKey).empty())
        return node.input(0) == value;
    return false;
  }
  bool stops() const {
    return llvm::any_of(graph.node(), [](const auto &node) { return !metadataOf(node, stopGradientKey).empty(); });
  }
};

/// Repairs relu(fc(x)), or relu(x) if not `isOfParameter`, followed by an Add of `inputs` with `statement`.
Repaired repairedDetach(bool isOfParameter, bool isKept, std::vector<std::string> inputs, llvm::StringRef statement) {
  ExportedModel model({"fc.weight"});
  model.input("x", {2, 2});
  model.output("add", {2, 2});
  model.initializer("fc.weight", {2, 2}, {1, 2, 3, 4});
  model.node("MatMul", {"x", "fc.weight"}, "linear", "fc", "aten.linear.default](args = (%x, %p_fc_weight)");
  model.node("Relu", {isOfParameter ? "linear" : "x"}, "relu", "", "aten.relu.default](args = (%linear)");
  if (isKept)
    model.node("Identity", {"relu"}, "detach", "", "aten.detach.default](args = (%relu,)");
  model.node("Add", inputs, "add", "", statement.str());
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  if (!imported)
    return {llvm::toString(imported.takeError()), {}};
  return {"", imported->model->graph()};
}

TEST(OnnxComplete, GradientsStopWhereTheModelDetaches) {
  const char *sum = "aten.add.Tensor](args = (%linear, %detach)";
  EXPECT_TRUE(repairedDetach(true, false, {"linear", "relu"}, sum).stopsAt("relu"));
  EXPECT_TRUE(repairedDetach(true, true, {"linear", "detach"}, sum).stopsAt("relu"));
  EXPECT_TRUE(repairedDetach(true, false, {"linear", "linear"}, sum).stopsAt("linear")); // x + x.detach()
  EXPECT_FALSE(repairedDetach(false, false, {"linear", "relu"}, sum).stops());
  EXPECT_FALSE(repairedDetach(false, true, {"linear", "detach"}, sum).stops());
}

TEST(OnnxComplete, ADetachedValueThatNothingTellsApartIsRefused) {
  const char *both = "aten.add.Tensor](args = (%clone, %detach, alpha = 1, %mul)";
  EXPECT_THAT(repairedDetach(true, false, {"linear", "relu"}, both).error,
              testing::HasSubstr("'node_add' may read what the model detaches"));
}

TEST(OnnxComplete, ADetachedValueThatWasMergedWithAnotherIsRefused) {
  // relu(linear) and relu(linear.detach()) are one node; the sum quotes both.
  const char *sum = "aten.add.Tensor](args = (%relu, %relu_1, %detach)";
  EXPECT_THAT(repairedDetach(true, false, {"relu", "relu"}, sum).error, testing::HasSubstr("may read what the model"));
}

TEST(OnnxComplete, GatesOfRecurrentLayersAreInPyTorchsOrder) {
  ExportedModel model({"rnn.weight_ih_l0", "rnn.weight_hh_l0"});
  model.input("x", {3, 2, 1});
  model.output("lstm", {3, 1, 2, 1});
  model.folded("val_1", {1, 4, 1}, {1, 2, 3, 4}, {"rnn.weight_ih_l0", "zeros"});
  model.folded("val_2", {1, 4, 1}, {5, 6, 7, 8}, {"rnn.weight_hh_l0", "zeros"});
  model.integer(model.node("LSTM", {"x", "val_1", "val_2"}, "lstm", "rnn",
                           "aten.lstm.input](args = (%x, %p_rnn_weight_ih_l0, %p_rnn_weight_hh_l0)"),
                "hidden_size", 1);
  llvm::Expected<ImportedModel> imported = inspectOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  HostTensors weights = weightsOf(*imported);
  EXPECT_EQ(weights["rnn.weight_ih_l0"].values, std::vector<double>({1, 3, 4, 2}));
  EXPECT_EQ(weights["rnn.weight_hh_l0"].values, std::vector<double>({5, 7, 8, 6}));
}

TEST(OnnxComplete, ATableThatAnEmbeddingReadsUnderAnotherNameIsOneParameter) {
  ExportedModel model({"embed.weight", "head.weight"});
  model.input("ids", {2, 2});
  model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  model.output("mul", {2, 2, 1});
  model.initializer("head.weight", {3, 1}, {1, 2, 3});
  model.initializer("scale", {}, {2});
  model.node("Gather", {"head.weight", "ids"}, "embedding", "embed", "aten.embedding](args = (%p_head_weight, %ids)");
  model.node("Mul", {"embedding", "scale"}, "mul", "embed", "aten.mul.Tensor](args = (%embedding, %b_scale)");
  EXPECT_EQ(errorOf(model), "");
}

TEST(OnnxComplete, FoldedBatchNormTrainsItsBiasesAndWarns) {
  ExportedModel model({"conv.weight", "bn.weight", "bn.bias"});
  model.input("x", {2, 1, 1, 1});
  model.output("bn", {2, 1, 1, 1});
  model.initializer("conv.weight", {1, 1, 1, 1}, {2});
  model.initializer("conv.weight_bias", {1}, {3});
  model.node("Conv", {"x", "conv.weight", "conv.weight_bias"}, "bn", "bn",
             "aten._native_batch_norm_legit_no_training.default](args = (%conv2d, %p_bn_weight, %p_bn_bias)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_TRUE(parameterOf(*imported, "conv.bias"));
  EXPECT_THAT(notesOf(*imported), testing::HasSubstr("warning: the exporter folded BatchNorm"));
  EXPECT_THAT(notesOf(*imported), testing::HasSubstr("'bn'"));
}

TEST(OnnxComplete, WhatNoStatementReadsIsNamedAndNoError) {
  ExportedModel model({"fc.weight", "pooler.weight"});
  model.input("x", {2, 3});
  model.output("linear", {2, 1});
  model.initializer("fc.weight", {3, 1}, {1, 2, 3});
  model.node("MatMul", {"x", "fc.weight"}, "linear", "fc", "aten.linear.default](args = (%x, %p_fc_weight)");
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), batchOfTwo());
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_THAT(notesOf(*imported), testing::HasSubstr("'pooler.weight'"));
}

TEST(OnnxComplete, AWeightThatIsReadAndNotThereIsRefused) {
  ExportedModel model({"fc.weight", "gate.weight"});
  model.input("x", {2, 3});
  model.output("mul", {2, 1});
  model.initializer("fc.weight", {3, 1}, {1, 2, 3});
  model.initializer("val_7", {1}, {1});
  model.node("MatMul", {"x", "fc.weight"}, "linear", "fc", "aten.linear.default](args = (%x, %p_fc_weight)");
  model.node("Mul", {"linear", "val_7"}, "mul", "gate", "aten.gate.Tensor](args = (%linear, %p_gate_weight)");
  EXPECT_THAT(errorOf(model), testing::HasSubstr("'gate.weight' is read by 'gate'"));
}

/// head(embed(ids) * scale) with one weight for both: traced under the name of the one that the signature lists last.
TEST(OnnxComplete, TheRowsOfATiedEmbeddingAreNoPartsOfAnother) {
  ExportedModel model({"embed.weight", "head.weight"});
  model.input("ids", {2, 2});
  model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  model.output("linear", {2, 2, 2});
  model.initializer("head.weight", {2, 2}, {1, 2, 3, 4});
  model.initializer("scale", {2}, {5, 6});
  model.node("Gather", {"head.weight", "ids"}, "embedding", "embed",
             "aten.embedding.default](args = (%p_head_weight, %ids)");
  model.node("Mul", {"embedding", "scale"}, "mul", "embed", "aten.mul.Tensor](args = (%embedding, %scale)");
  model.node("Transpose", {"head.weight"}, "t", "head", "aten.t.default](args = (%p_head_weight)");
  model.node("MatMul", {"mul", "t"}, "linear", "head", "aten.matmul.default](args = (%mul, %t)");
  EXPECT_EQ(errorOf(model), "");
}

TEST(OnnxComplete, PartsThatAStatementDoesNotQuoteAreOfAParameterThatWasMerged) {
  ExportedModel model({"first.bias", "second.bias"});
  model.input("x", {2, 2});
  model.output("add_1", {2, 2});
  model.initializer("first.bias", {4}, {1, 2, 3, 4});
  onnx::NodeProto &split =
      model.node("Split", {"first.bias"}, "part", "first", "aten.split.Tensor](args = (%p_first_bias, 2)");
  split.add_output("other_part");
  model.integer(split, "num_outputs", 2);
  model.node("Add", {"x", "part"}, "add", "first", "aten.add.Tensor](args = (%x, %part)");
  model.node("Add", {"add", "other_part"}, "add_1", "second", "aten.add.Tensor](args = (%add, %gone)");
  EXPECT_THAT(errorOf(model), testing::HasSubstr("'second.bias' is read as parts of another parameter"));
}

} // namespace

} // namespace fsdpc
