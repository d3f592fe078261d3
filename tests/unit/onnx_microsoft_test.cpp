// Ops of com.microsoft compute what the plain ops that they were fused from compute, with the right derivatives.
#include "tests/frontend/onnx_text.h"

namespace fsdpc {

namespace {

struct FusedCase {
  const char *name;
  const char *fused, *plain; ///< graphs of x and y
};

std::ostream &operator<<(std::ostream &out, const FusedCase &fusedCase) { return out << fusedCase.name; }

#define INTS(name, values) name " = Constant<value_ints = [" values "]>() "
#define REAL(name, value) name " = Constant<value_float = " value ">() "
#define GAMMA "g = Constant<value = float[4] {1.0, 2.0, -0.5, 0.3}>() "
#define BETA "e = Constant<value = float[4] {0.1, 0.2, 0.5, -1.0}>() "
#define ANGLES                                                                                                         \
  "c = Constant<value = float[4,2] {1.0, 1.0, 0.5, 0.8, -0.4, 0.3, -0.9, 0.1}>() "                                     \
  "s = Constant<value = float[4,2] {0.0, 0.0, 0.8, 0.6, 0.9, 0.9, 0.4, 0.99}>() "
#define BIAS "b = Constant<value = float[4] {0.3, -0.2, 0.1, 0.7}>() "

// x [2,3,6] split into three [2,3,2], shown as 1 head of 2.
#define HEADS                                                                                                          \
  "q, k, v = Split<axis = 2, num_outputs = 3>(x) kt = Transpose<perm = [0, 2, 1]>(k) p = MatMul(q, kt) " REAL(         \
      "r", "0.7071067811865475") "s = Mul(p, r) "

const FusedCase cases[] = {
    {"BiasGelu", "(float[1,4] x) => (float[1,4] y) { " BIAS "y = com.microsoft.BiasGelu(x, b) }",
     "(float[1,4] x) => (float[1,4] y) { " BIAS "s = Add(x, b) y = Gelu(s) }"},
    {"Gelu", "(float[1,4] x) => (float[1,4] y) { y = com.microsoft.Gelu(x) }",
     "(float[1,4] x) => (float[1,4] y) { y = Gelu(x) }"},
    {"FastGelu", "(float[1,4] x) => (float[1,4] y) { y = com.microsoft.FastGelu(x) }",
     "(float[1,4] x) => (float[1,4] y) { y = Gelu<approximate = \"tanh\">(x) }"},
    {"QuickGelu", "(float[1,4] x) => (float[1,4] y) { y = com.microsoft.QuickGelu<alpha = 1.5>(x) }",
     "(float[1,4] x) => (float[1,4] y) { " REAL("a", "1.5") "m = Mul(x, a) s = Sigmoid(m) y = Mul(x, s) }"},
    {"BiasSoftmax", "(float[1,4] x) => (float[1,4] y) { " BIAS "y = com.microsoft.BiasSoftmax<axis = -1>(x, b) }",
     "(float[1,4] x) => (float[1,4] y) { " BIAS "s = Add(x, b) y = Softmax(s) }"},
    {"FusedMatMul",
     "(float[2,3,2] x) => (float[2,3,3] y) { y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.5>(x, x) }",
     "(float[2,3,2] x) => (float[2,3,3] y) { t = Transpose<perm = [0, 2, 1]>(x) m = MatMul(x, t) " REAL(
         "h", "0.5") "y = Mul(m, h) }"},
    {"FusedGemm",
     "(float[2,2] x) => (float[2,2] y) { y = com.microsoft.FusedGemm<transB = 1, activation = \"Relu\">(x, x) }",
     "(float[2,2] x) => (float[2,2] y) { m = Gemm<transB = 1>(x, x) y = Relu(m) }"},
    {"FusedConv",
     "(float[1,1,4] x) => (float[1,1,4] y) { w = Constant<value = float[1,1,3] {0.5, -1.0, 2.0}>() "
     "y = com.microsoft.FusedConv<pads = [1, 1], activation = \"LeakyRelu\", activation_params = [0.02]>(x, w, , x) }",
     "(float[1,1,4] x) => (float[1,1,4] y) { w = Constant<value = float[1,1,3] {0.5, -1.0, 2.0}>() "
     "c = Conv<pads = [1, 1]>(x, w) s = Add(c, x) y = LeakyRelu<alpha = 0.02>(s) }"},
    {"SimplifiedLayerNormalization",
     "(float[2,4] x) => (float[2,4] y) { " GAMMA "y = SimplifiedLayerNormalization<epsilon = 0.01>(x, g) }",
     "(float[2,4] x) => (float[2,4] y) { " GAMMA "m = Mul(x, x) " INTS("a", "-1") "v = ReduceMean(m, a) " REAL(
         "e", "0.01") "w = Add(v, e) d = Sqrt(w) n = Div(x, d) y = Mul(n, g) }"},
    {"SkipLayerNormalization",
     "(float[2,4] x) => (float[2,4] y) { " GAMMA BETA BIAS "s = Exp(x) z, , , t = com.microsoft."
     "SkipLayerNormalization<epsilon = 0.01>(x, s, g, e, b) y = Add(z, t) }",
     "(float[2,4] x) => (float[2,4] y) { " GAMMA BETA BIAS "s = Exp(x) u = Add(x, s) t = Add(u, b) "
     "z = LayerNormalization<epsilon = 0.01>(t, g, e) y = Add(z, t) }"},
    {"SkipSimplifiedLayerNormalization",
     "(float[2,4] x) => (float[2,4] y) { " GAMMA "s = Exp(x) y = com.microsoft."
     "SkipSimplifiedLayerNormalization<epsilon = 0.01>(x, s, g) }",
     "(float[2,4] x) => (float[2,4] y) { " GAMMA
     "s = Exp(x) t = Add(x, s) y = com.microsoft.SimplifiedLayerNormalization<epsilon = 0.01>(t, g) }"},
    {"EmbedLayerNormalization",
     "(float[2,4] x) => (float[1,2,4] y) { " GAMMA BETA INTS("j", "1, 0")
         INTS("sh", "1, 2") "ids = Reshape(j, sh) "
                            "y, m = com.microsoft.EmbedLayerNormalization<epsilon = 0.01>(ids, ids, x, x, x, g, e) }",
     "(float[2,4] x) => (float[1,2,4] y) { " GAMMA BETA INTS(
         "j", "1, 0") "r = Gather(x, j) u = Add(r, x) t = Add(u, r) "
                      "z = LayerNormalization<epsilon = 0.01>(t, g, e) " INTS("sh", "1, 2, 4") "y = Reshape(z, sh) }"},
    {"MultiHeadAttention",
     "(float[2,3,6] x) => (float[2,3,2] y) { q, k, v = Split<axis = 2, num_outputs = 3>(x) "
     "m = Constant<value = int32[2,3] {1, 1, 1, 1, 1, 0}>() "
     "y = com.microsoft.MultiHeadAttention<num_heads = 1>(q, k, v, , m) }",
     "(float[2,3,6] x) => (float[2,3,2] y) { " HEADS
     "m = Constant<value = float[2,1,3] {0.0, 0.0, 0.0, 0.0, 0.0, -10000.0}>() u = Add(s, m) w = Softmax(u) "
     "y = MatMul(w, v) }"},
    {"MultiHeadAttentionByLength",
     "(float[2,3,6] x) => (float[2,3,2] y) { q, k, v = Split<axis = 2, num_outputs = 3>(x) "
     "m = Constant<value = int32[2] {3, 2}>() "
     "y = com.microsoft.MultiHeadAttention<num_heads = 1>(q, k, v, , m) }",
     "(float[2,3,6] x) => (float[2,3,2] y) { " HEADS
     "m = Constant<value = float[2,1,3] {0.0, 0.0, 0.0, 0.0, 0.0, -10000.0}>() u = Add(s, m) w = Softmax(u) "
     "y = MatMul(w, v) }"},
    {"Attention",
     "(float[2,3,6] x) => (float[2,3,2] y) { " INTS(
         "n", "6, 6") "z = ConstantOfShape(n) o = EyeLike<dtype = 1>(z) "
                      "y = com.microsoft.Attention<num_heads = 1, unidirectional = 1>(x, o) }",
     "(float[2,3,6] x) => (float[2,3,2] y) { " HEADS
     "m = Constant<value = float[3,3] {0.0, -1e30, -1e30, 0.0, 0.0, -1e30, 0.0, 0.0, 0.0}>() u = Add(s, m) "
     "w = Softmax(u) y = MatMul(w, v) }"},
    {"GroupQueryAttention",
     "(float[2,3,8] x) => (float[2,3,4] y) { n = Constant<value_ints = [4, 2, 2]>() q, k, v = Split<axis = 2>(x, n) "
     "l = Constant<value = int32[2] {2, 2}>() t = Constant<value = int32[1] {3}>() "
     "y = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, scale = 0.5>"
     "(q, k, v, , , l, t) }",
     "(float[2,3,8] x) => (float[2,3,4] y) { n = Constant<value_ints = [4, 2, 2]>() q, k, v = Split<axis = 2>(x, n) "
     "y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1, scale = 0.5>(q, k, v) }"},
    {"GroupQueryAttentionWithSoftcap",
     "(float[2,3,6] x) => (float[2,3,2] y) { q, k, v = Split<axis = 2, num_outputs = 3>(x) "
     "l = Constant<value = int32[2] {2, 1}>() "
     "y = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1, softcap = 0.5>(q, k, v, , , l) }",
     "(float[2,3,6] x) => (float[2,3,2] y) { " HEADS REAL(
         "a",
         "0.5") "d = Div(s, a) h = Tanh(d) c = Mul(h, a) "
                "m = Constant<value = float[3,3] {0.0, -1e30, -1e30, 0.0, 0.0, -1e30, 0.0, 0.0, 0.0}>() u = Add(c, m) "
                "w = Softmax(u) y = MatMul(w, v) }"},
    {"GroupQueryAttentionPackedTurnedInAWindow",
     "(float[1,3,16] x) => (float[1,3,8] y) { " ANGLES "l = Constant<value = int32[1] {2}>() "
     "y = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1, do_rotary = 1, local_window_size = 2>"
     "(x, , , , , l, , c, s) }",
     "(float[1,3,16] x) => (float[1,3,8] y) { " ANGLES "p = Constant<value = int64[1,3] {0, 1, 2}>() "
     "n = Constant<value_ints = [8, 4, 4]>() r, j, v = Split<axis = 2>(x, n) "
     "q = RotaryEmbedding<num_heads = 2>(r, c, s, p) k = RotaryEmbedding<num_heads = 1>(j, c, s, p) "
     "m = Constant<value = float[3,3] {0.0, -1e30, -1e30, 0.0, 0.0, -1e30, -1e30, 0.0, 0.0}>() "
     "y = Attention<q_num_heads = 2, kv_num_heads = 1>(q, k, v, m) }"},
    {"RotaryEmbedding",
     "(float[1,2,3,4] x) => (float[1,2,3,4] y) { " ANGLES "p = Constant<value = int64[1,3] {0, 2, 3}>() "
     "y = com.microsoft.RotaryEmbedding<interleaved = 1>(x, p, c, s) }",
     "(float[1,2,3,4] x) => (float[1,2,3,4] y) { " ANGLES "p = Constant<value = int64[1,3] {0, 2, 3}>() "
     "y = RotaryEmbedding<interleaved = 1>(x, c, s, p) }"},
    {"RotaryEmbeddingOfPart",
     "(float[1,3,10] x) => (float[1,3,10] y) { " ANGLES INTS(
         "p", "1") "y = com.microsoft.RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 4>(x, p, c, s) }",
     "(float[1,3,10] x) => (float[1,3,10] y) { " ANGLES "p = Constant<value = int64[1,3] {1, 2, 3}>() "
     "y = RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 4>(x, c, s, p) }"},
};

class Fused : public testing::TestWithParam<FusedCase> {};

constexpr llvm::StringRef opsets = "\"\" : 23, \"com.microsoft\" : 1";

TEST_P(Fused, AgreesWithPlainOps) {
  llvm::Expected<ImportedModel> fused = importText(GetParam().fused, opsets),
                                plain = importText(GetParam().plain, opsets);
  ASSERT_TRUE(static_cast<bool>(fused)) << llvm::toString(fused.takeError());
  ASSERT_TRUE(static_cast<bool>(plain)) << llvm::toString(plain.takeError());
  HostTensor x = inputOf(*fused->module, 0, 1);
  for (double &value : x.values)
    value = std::sin(1 + 1.7 * value);
  HostTensors ours = runForward(*fused->module, {}, {{"x", x}}), theirs = runForward(*plain->module, {}, {{"x", x}});
  EXPECT_LT(deviation(ours["y"], theirs["y"]), 1e-6);
  checkGradientsAt(*fused->module, x);
}

INSTANTIATE_TEST_SUITE_P(All, Fused, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(FusedOps, GroupQueryAttentionWithACacheIsRefused) {
  llvm::Expected<ImportedModel> imported = importText(
      "(float[1,3,8] x, float[1,1,5,4] c) => (float[1,3,8] y) { k = Constant<value = float[1,3,4] {1.0, 2.0, "
      "3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0}>() "
      "y = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(x, k, k, c, c) }",
      opsets);
  ASSERT_FALSE(static_cast<bool>(imported));
  EXPECT_NE(llvm::toString(imported.takeError()).find("export without past keys and values"), std::string::npos);
}

TEST(FusedOps, OfOtherKindsNameTheFileToUse) {
  llvm::Expected<ImportedModel> imported =
      importText("(float[1,4] x) => (float[1,4] y) { y = com.microsoft.MatMulNBits(x) }", opsets);
  ASSERT_FALSE(static_cast<bool>(imported));
  EXPECT_NE(llvm::toString(imported.takeError()).find("quantized weights do not train; export the float model"),
            std::string::npos);
}

// ---- random numbers

/// Values of y where the graph draws numbers.
std::vector<double> drawn(llvm::StringRef nodes) {
  llvm::Expected<ImportedModel> imported = importText("(float[40,50] x) => (float[40,50] y) { " + nodes.str() + " }");
  if (!imported) {
    ADD_FAILURE() << llvm::toString(imported.takeError());
    return {};
  }
  HostTensor x(imported->module->function(FunctionKind::forward)->argument("x")->type(), 0.25);
  return runForward(*imported->module, {}, {{"x", x}})["y"].values;
}

struct Moments {
  double mean = 0, deviation = 0;
};

Moments momentsOf(const std::vector<double> &values) {
  Moments moments;
  for (double value : values)
    moments.mean += value / static_cast<double>(values.size());
  for (double value : values)
    moments.deviation += (value - moments.mean) * (value - moments.mean) / static_cast<double>(values.size());
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

TEST(RandomOps, HaveTheirDistributions) {
  for (const char *nodes : {"r = RandomNormalLike<mean = 3.0, scale = 2.0>(x) y = Add(r, x)",
                            "r = RandomNormal<shape = [40, 50], mean = 3.0, scale = 2.0>() y = Add(r, x)"}) {
    Moments normal = momentsOf(drawn(nodes));
    EXPECT_NEAR(normal.mean, 3.25, 0.2);
    EXPECT_NEAR(normal.deviation, 2, 0.15);
  }
  for (const char *nodes : {"r = RandomUniformLike<low = -1.0, high = 5.0>(x) y = Add(r, x)",
                            "r = RandomUniform<shape = [40, 50], low = -1.0, high = 5.0>() y = Add(r, x)"}) {
    std::vector<double> values = drawn(nodes);
    Moments uniform = momentsOf(values);
    EXPECT_NEAR(uniform.mean, 2.25, 0.2);
    EXPECT_NEAR(uniform.deviation, 6 / std::sqrt(12.0), 0.15);
    EXPECT_GE(*std::min_element(values.begin(), values.end()), -0.75);
    EXPECT_LT(*std::max_element(values.begin(), values.end()), 5.25);
  }
  EXPECT_NEAR(momentsOf(drawn("y = Bernoulli(x)")).mean, 0.25, 0.05);
}

TEST(RandomOps, OfOneModelDiffer) {
  std::vector<double> difference = drawn("a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)");
  EXPECT_NEAR(momentsOf(difference).deviation, std::sqrt(2.0), 0.15);
}

} // namespace

} // namespace fsdpc
