// A query whose keys are all masked by a boolean mask sees none of them, unlike in the form that the exporter writes.
#include "tests/frontend/exported_model.h"
#include "tests/frontend/fixture.h"
#include <limits>

namespace fsdpc {

namespace {

/// Turns the last initializer into a Constant node, as in exports that were not optimized.
void moveIntoNode(ExportedModel &model, llvm::StringRef name) {
  onnx::NodeProto &node = model.node("Constant", {}, name, "", "");
  onnx::AttributeProto &value = *node.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->CopyFrom(*model.graph().initializer().rbegin());
  value.mutable_t()->clear_name();
  model.graph().mutable_initializer()->RemoveLast();
}

/// softmax(scores + mask) table, as the exporter writes scaled_dot_product_attention. `target` is the op that its nodes
/// were traced from. In the batch below, the first query of the first sample sees no key.
std::vector<double> attend(llvm::StringRef target, bool hasGuard = true, bool hasConstantNode = false) {
  ExportedModel model({"table"});
  model.input("scores", {2, 2, 2});
  model.input("shown", {2, 2, 2});
  model.output("out", {2, 2, 2});
  model.initializer("table", {2, 2}, {1, 2, 3, 4});
  model.initializer("zero", {}, {0});
  model.initializer("least", {}, {std::numeric_limits<float>::lowest()});
  model.node("Greater", {"shown", "zero"}, "visible", "", "aten.gt.Scalar](args = (%shown, 0)");
  auto part = [&](llvm::StringRef op, llvm::ArrayRef<std::string> inputs, llvm::StringRef result) {
    onnx::NodeProto &node = model.node(op, inputs, result, "", "");
    node.mutable_metadata_props(0)->set_value("%attention : [num_users=1] = call_function[target=torch.ops." +
                                              target.str() + "](args = (%scores, %visible), kwargs = {})");
  };
  if (hasConstantNode)
    moveIntoNode(model, "least");
  part("Where", {"visible", "zero", "least"}, "mask");
  part("Add", {"scores", "mask"}, "masked");
  part("Softmax", {"masked"}, "shares");
  if (hasGuard) {
    part("IsNaN", {"shares"}, "undefined");
    part("Where", {"undefined", "zero", "shares"}, "guarded");
  }
  part("MatMul", {hasGuard ? "guarded" : "shares", "table"}, "out");
  ImportOptions options;
  options.microBatchSize = 2;
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), options);
  if (!imported) {
    ADD_FAILURE() << llvm::toString(imported.takeError());
    return {};
  }
  HostTensors batch, weights;
  const Type type(DType::f32, Shape{2, 2, 2});
  batch["scores"] = HostTensor(type, 1);
  batch["shown"] = HostTensor(type, 1);
  batch["shown"].values[0] = batch["shown"].values[1] = 0;
  weights["table"] = HostTensor(Type(DType::f32, Shape{2, 2}));
  weights["table"].values = {1, 2, 3, 4};
  HostTensors results = runForward(*imported->module, weights, batch);
  return results.empty() ? std::vector<double>() : results.begin()->second.values;
}

TEST(OnnxMasks, AQueryWhoseKeysABooleanMaskHidesAllIsZero) {
  EXPECT_EQ(attend("aten.scaled_dot_product_attention.default"), (std::vector<double>{0, 0, 2, 3, 2, 3, 2, 3}));
}

TEST(OnnxMasks, TheLeastFloatOfAConstantNodeHidesTheSame) {
  EXPECT_EQ(attend("aten.scaled_dot_product_attention.default", true, true),
            (std::vector<double>{0, 0, 2, 3, 2, 3, 2, 3}));
}

TEST(OnnxMasks, ALeastFloatThatTheAuthorSelectedStays) {
  EXPECT_EQ(attend("aten.where.self"), (std::vector<double>{2, 3, 2, 3, 2, 3, 2, 3}));
}

TEST(OnnxMasks, WithoutAGuardTheLeastFloatStays) {
  EXPECT_EQ(attend("aten.scaled_dot_product_attention.default", false), (std::vector<double>{2, 3, 2, 3, 2, 3, 2, 3}));
}

} // namespace

} // namespace fsdpc
