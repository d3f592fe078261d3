// Weights that cannot be read end the import; nothing is concluded from them.
#include "frontend/onnx/repair.h"
#include "frontend/onnx/tensor_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdpc {

namespace {

/// Two modules read one bias, which is stored in a missing file.
OnnxModel modelWithoutData() {
  OnnxModel model;
  model.path = "model.onnx";
  model.folder = testing::TempDir();
  model.proto.set_producer_name("pytorch");
  onnx::GraphProto &graph = model.graph();
  onnx::TensorProto &bias = *graph.add_initializer();
  bias.set_name("fc1.bias");
  bias.set_data_type(onnx::TensorProto::FLOAT);
  bias.add_dims(4);
  bias.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto &location = *bias.add_external_data();
  location.set_key("location");
  location.set_value("fsdpc-no-such-weights.bin");
  for (auto [name, input, output] : {std::tuple("/fc1/Add", "x", "h"), {"/other/Add", "h", "y"}}) {
    onnx::NodeProto &node = *graph.add_node();
    node.set_name(name);
    node.set_op_type("Add");
    node.add_input(input);
    node.add_input("fc1.bias");
    node.add_output(output);
  }
  return model;
}

std::string messageOf(llvm::Error error) { return llvm::toString(std::move(error)); }

TEST(UnreadWeights, AreNotTakenForUniform) {
  OnnxModel model = modelWithoutData();
  llvm::Expected<bool> unread = isUniform(model, model.graph().initializer(0), /*ifAbsent=*/true);
  ASSERT_FALSE(static_cast<bool>(unread));
  EXPECT_THAT(messageOf(unread.takeError()), testing::HasSubstr("fsdpc-no-such-weights.bin"));
  model.weightsMayBeAbsent = true;
  for (bool answer : {true, false}) {
    llvm::Expected<bool> absent = isUniform(model, model.graph().initializer(0), answer);
    ASSERT_TRUE(static_cast<bool>(absent)) << messageOf(absent.takeError());
    EXPECT_EQ(*absent, answer);
  }
}

TEST(UnreadWeights, EndTheSplittingOfWhatWasMerged) {
  OnnxModel model = modelWithoutData();
  const ImportOptions options;
  std::vector<std::string> remarks;
  EXPECT_THAT(messageOf(splitMerged({model, options, remarks})), testing::HasSubstr("fsdpc-no-such-weights.bin"));
  model.weightsMayBeAbsent = true;
  EXPECT_EQ(messageOf(splitMerged({model, options, remarks})), "");
}

} // namespace

} // namespace fsdpc
