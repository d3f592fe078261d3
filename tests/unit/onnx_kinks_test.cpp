// At a kink of a function, its derivative is PyTorch's. Zero biases put entire channels there.
#include "tests/frontend/onnx_text.h"

namespace fsdpc {

namespace {

struct Kink {
  const char *name;
  const char *nodes; ///< y of x
  double x, slope;   ///< as torch.autograd has it (2.15, f64)
};

std::ostream &operator<<(std::ostream &out, const Kink &kink) { return out << kink.name; }

#define BOUNDS(low, high)                                                                                              \
  "l = Constant<value = float {" low "}>() h = Constant<value = float {" high "}>() y = Clip(x, l, h)"

const Kink kinks[] = {
    {"Relu", "y = Relu(x)", 0, 0},
    {"Relu6AtZero", BOUNDS("0.0", "6.0"), 0, 0},
    {"Relu6AtSix", BOUNDS("0.0", "6.0"), 6, 0},
    {"HardtanhBelow", BOUNDS("-1.0", "1.0"), -1, 0},
    {"HardtanhAbove", BOUNDS("-1.0", "1.0"), 1, 0},
    {"HardtanhWithin", BOUNDS("-1.0", "1.0"), 0.5, 1},
    {"ClampWithoutMaximum", "l = Constant<value = float {0.5}>() y = Clip(x, l)", 0.5, 0},
    {"ClampWithoutMinimum", "h = Constant<value = float {0.5}>() y = Clip(x, , h)", 0.5, 0},
    {"HardSigmoidBelow", "y = HardSigmoid<alpha = 0.25, beta = 0.5>(x)", -2, 0},
    {"HardSigmoidAbove", "y = HardSigmoid<alpha = 0.25, beta = 0.5>(x)", 2, 0},
    {"LeakyRelu", "y = LeakyRelu<alpha = 0.1>(x)", 0, 0.1},
    {"PRelu", "w = Constant<value = float {0.25}>() y = PRelu(x, w)", 0, 0.25},
    {"Elu", "y = Elu<alpha = 0.5>(x)", 0, 0.5},
    {"Selu", "y = Selu(x)", 0, 1.7580993408473766},
    {"Celu", "y = Celu<alpha = 0.5>(x)", 0, 1},
    {"ThresholdedRelu", "y = ThresholdedRelu<alpha = 0.5>(x)", 0.5, 0},
    {"SoftshrinkAbove", "y = Shrink<lambd = 0.5, bias = 0.5>(x)", 0.5, 0},
    {"SoftshrinkBelow", "y = Shrink<lambd = 0.5, bias = 0.5>(x)", -0.5, 0},
    {"Softplus", "y = Softplus(x)", 0, 0.5},
    {"Softsign", "y = Softsign(x)", 0, 1},
    {"Abs", "y = Abs(x)", 0, 0},
    {"Maximum", "z = Constant<value = float {0.0}>() y = Max(x, z)", 0, 0.5},
};

double derivativeAt(const Module &module, double x) {
  const Type type(DType::f32, {1, 1});
  return gradientsOf({HostTensor(type, x)}, forwardOf(module), {HostTensor(type, 1)}).front().values[0];
}

class Kinks : public testing::TestWithParam<Kink> {};

TEST_P(Kinks, HavePyTorchsDerivative) {
  const Kink &kink = GetParam();
  llvm::Expected<ImportedModel> imported =
      importText(std::string("(float[1,1] x) => (float[1,1] y) { ") + kink.nodes + " }", "\"\" : 20");
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  EXPECT_NEAR(derivativeAt(*imported->module, kink.x), kink.slope, 1e-6);
}

TEST_P(Kinks, PassNotANumberOn) {
  const std::string graph = std::string("(float[1,1] x) => (float[1,1] y) { ") + GetParam().nodes + " }";
  llvm::Expected<ImportedModel> imported = importText(graph, "\"\" : 20");
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  HostTensor x(Type(DType::f32, {1, 1}), std::nan(""));
  const bool isChosenByComparison = llvm::StringRef(GetParam().name).starts_with("Threshold") ||
                                    llvm::StringRef(GetParam().name).starts_with("Softshrink");
  EXPECT_EQ(std::isnan(runForward(*imported->module, {}, {{"x", x}})["y"].values[0]), !isChosenByComparison);
}

INSTANTIATE_TEST_SUITE_P(All, Kinks, testing::ValuesIn(kinks),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

} // namespace fsdpc
