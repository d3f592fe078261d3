// A translation of an op that ONNX defines by simpler ops computes what that definition computes.
#include "onnx/defs/parser.h"
#include "onnx/inliner/inliner.h"
#include "onnx/shape_inference/implementation.h"
#include "tests/frontend/fixture.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

namespace fsdpc {

namespace {

struct FunctionCase {
  const char *name; ///< of the op, and of the test up to a digit
  const char *text; ///< inputs, outputs and nodes of a graph
  double low = -3, high = 3;
  int opset = 21;
};

std::ostream &operator<<(std::ostream &out, const FunctionCase &functionCase) { return out << functionCase.name; }

const FunctionCase cases[] = {
    {"CastLike",
     "(float[2,3] x) => (float[2,3] y) { like = Constant<value = float[1] {0.0}>() y = CastLike(x, like) }"},
    {"Celu", "(float[2,3] x) => (float[2,3] y) { y = Celu<alpha = 2.0>(x) }"},
    {"Clip", "(float[2,3] x) => (float[2,3] y) { low = Constant<value = float {-1.0}>() high = Constant<value = float "
             "{0.5}>() y = Clip(x, low, high) }"},
    {"Elu", "(float[2,3] x) => (float[2,3] y) { y = Elu<alpha = 0.5>(x) }"},
    {"Gelu1", "(float[2,3] x) => (float[2,3] y) { y = Gelu(x) }"},
    {"Gelu2", "(float[2,3] x) => (float[2,3] y) { y = Gelu<approximate = \"tanh\">(x) }"},
    {"GroupNormalization", "(float[2,6,4,3] x) => (float[2,6,4,3] y) { "
                           "s = Constant<value = float[6] {1.0, 2.0, 0.5, -1.0, 3.0, 1.5}>() "
                           "b = Constant<value = float[6] {0.1, 0.2, 0.5, -1.0, 3.0, 1.5}>() "
                           "y = GroupNormalization<num_groups = 3>(x, s, b) }"},
    {"HardSigmoid", "(float[2,3] x) => (float[2,3] y) { y = HardSigmoid<alpha = 0.3, beta = 0.4>(x) }"},
    {"HardSwish", "(float[2,3] x) => (float[2,3] y) { y = HardSwish(x) }"},
    {"LayerNormalization1",
     "(float[2,3,4] x) => (float[2,3,4] y) { "
     "s = Constant<value = float[4] {1.0, 2.0, 0.5, -1.0}>() b = Constant<value = float[4] {0.1, 0.2, 0.5, -1.0}>() "
     "y = LayerNormalization(x, s, b) }"},
    {"LayerNormalization2",
     "(float[2,3,4] x) => (float[2,3,4] y) { "
     "s = Constant<value = float[3,4] {0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25}>() "
     "y = LayerNormalization<axis = 1, epsilon = 0.1>(x, s) }"},
    {"LeakyRelu", "(float[2,3] x) => (float[2,3] y) { y = LeakyRelu<alpha = 0.2>(x) }"},
    {"LogSoftmax", "(float[2,3,4] x) => (float[2,3,4] y) { y = LogSoftmax<axis = 1>(x) }"},
    {"Mish", "(float[2,3] x) => (float[2,3] y) { y = Mish(x) }"},
    {"MeanVarianceNormalization",
     "(float[2,3,4,5] x) => (float[2,3,4,5] y) { y = MeanVarianceNormalization<axes = [2, 3]>(x) }"},
    {"NegativeLogLikelihoodLoss1", "(float[4,3] x) => (float y) { t = Constant<value = int64[4] {0, 2, 1, 2}>() "
                                   "y = NegativeLogLikelihoodLoss<reduction = \"mean\">(x, t) }"},
    {"NegativeLogLikelihoodLoss2", "(float[2,3,4] x) => (float[2,4] y) { w = Constant<value = float[3] {1.0, 2.0, "
                                   "0.5}>() t = Constant<value = int64[2,4] {0, 2, 1, 2, 1, 1, 0, 2}>() "
                                   "y = NegativeLogLikelihoodLoss<reduction = \"none\", ignore_index = 1>(x, t, w) }"},
    {"PRelu",
     "(float[2,3] x) => (float[2,3] y) { s = Constant<value = float[3] {0.25, 2.0, -0.5}>() y = PRelu(x, s) }"},
    {"ReduceL1", "(float[2,3,4] x) => (float[2,1,4] y) { a = Constant<value = int64[1] {1}>() y = ReduceL1(x, a) }"},
    {"ReduceL2", "(float[2,3,4] x) => (float[3] y) "
                 "{ a = Constant<value = int64[2] {0, -1}>() y = ReduceL2<keepdims = 0>(x, a) }"},
    {"ReduceLogSum", "(float[2,3,4] x) => (float y) { y = ReduceLogSum<keepdims = 0>(x) }", 0.5, 3},
    {"ReduceLogSumExp", "(float[2,3,4] x) => (float[2,4] y) "
                        "{ a = Constant<value = int64[1] {1}>() y = ReduceLogSumExp<keepdims = 0>(x, a) }"},
    {"ReduceSumSquare", "(float[2,3,4] x) => (float[1,1,1] y) { y = ReduceSumSquare(x) }"},
    {"RMSNormalization",
     "(float[2,3,4] x) => (float[2,3,4] y) { s = Constant<value = float[4] {0.25, 2.0, -0.5, 1.0}>() y = "
     "RMSNormalization(x, s) }",
     -3, 3, 23},
    {"Selu", "(float[2,3] x) => (float[2,3] y) { y = Selu<alpha = 1.5, gamma = 1.1>(x) }"},
    {"Shrink", "(float[2,3] x) => (float[2,3] y) { y = Shrink<lambd = 1.0, bias = 0.5>(x) }"},
    {"Softmax", "(float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis = -2>(x) }"},
    {"SoftmaxCrossEntropyLoss1",
     "(float[4,3] x) => (float y, float[4,3] z) { t = Constant<value = int64[4] {0, 2, 1, 2}>() "
     "y, z = SoftmaxCrossEntropyLoss<reduction = \"mean\", ignore_index = 2>(x, t) }"},
    {"SoftmaxCrossEntropyLoss2",
     "(float[2,3,4] x) => (float y) { w = Constant<value = float[3] {1.0, 2.0, 0.5}>() t = Constant<value = int64[2,4] "
     "{0, 2, 1, 2, 1, 1, 0, 2}>() "
     "y = SoftmaxCrossEntropyLoss<reduction = \"mean\">(x, t, w) }",
     0.5, 3},
    {"Softplus", "(float[2,3] x) => (float[2,3] y) { y = Softplus(x) }"},
    {"Softsign", "(float[2,3] x) => (float[2,3] y) { y = Softsign(x) }"},
    {"Swish", "(float[2,3] x) => (float[2,3] y) { y = Swish<alpha = 1.7>(x) }", -3, 3, 24},
    {"ThresholdedRelu", "(float[2,3] x) => (float[2,3] y) { y = ThresholdedRelu<alpha = 1.5>(x) }"},
};

class FunctionBodies : public testing::TestWithParam<FunctionCase> {};

HostTensors evaluateModel(const onnx::ModelProto &model, const HostTensors &batch) {
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("fsdpc", "onnx", path));
  llvm::FileRemover remover(path);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << model.SerializeAsString();
  ImportOptions options;
  options.microBatchSize = model.graph().input(0).type().tensor_type().shape().dim(0).dim_value();
  llvm::Expected<ImportedModel> imported = importOnnx(path, options);
  if (!imported) {
    ADD_FAILURE() << llvm::toString(imported.takeError());
    return {};
  }
  return runForward(*imported->module, {}, batch);
}

HostTensors randomInputs(const onnx::ModelProto &model, double low, double high) {
  HostTensors batch;
  uint64_t state = 1;
  for (const onnx::ValueInfoProto &input : model.graph().input()) {
    Shape shape;
    for (const auto &dim : input.type().tensor_type().shape().dim())
      shape.push_back(dim.dim_value());
    HostTensor value(Type(DType::f32, shape));
    for (double &x : value.values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = low + (high - low) * static_cast<double>(state >> 40) / 0x1p24;
    }
    batch[input.name()] = std::move(value);
  }
  return batch;
}

TEST_P(FunctionBodies, Agree) {
  std::string text =
      "<ir_version: 10, opset_import: [\"\" : " + std::to_string(GetParam().opset) + "]> agraph " + GetParam().text;
  onnx::ModelProto model;
  auto status = onnx::OnnxParser::Parse(model, text.c_str());
  ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
  onnx::ModelProto body = model;
  onnx::shape_inference::InferShapes(body);
  std::string op = llvm::StringRef(GetParam().name).rtrim("0123456789").str();
  op += GetParam().name == std::string("ReduceL1") ? "1" : GetParam().name == std::string("ReduceL2") ? "2" : "";
  auto selected = onnx::inliner::FunctionIdSet::Create({{"", op}});
  onnx::inliner::InlineSelectedFunctions(body, *selected, nullptr);
  for (const onnx::NodeProto &node : body.graph().node())
    ASSERT_NE(node.op_type(), op) << "has no function body";
  HostTensors batch = randomInputs(model, GetParam().low, GetParam().high);
  HostTensors ours = evaluateModel(model, batch), theirs = evaluateModel(body, batch);
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto &[name, value] : theirs)
    EXPECT_LT(deviation(ours[name], value), 1e-6) << name;
}

INSTANTIATE_TEST_SUITE_P(All, FunctionBodies, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

} // namespace fsdpc
