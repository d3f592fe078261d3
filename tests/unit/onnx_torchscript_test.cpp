// Files of the TorchScript exporter: only names and scopes tell the origin of values.
#include "tests/frontend/fixture.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "gmock/gmock.h"

namespace fsdpc {

namespace {

using testing::HasSubstr;

llvm::Expected<ImportedModel> importScripted(llvm::StringRef graph) {
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("scripted", "onnxtxt", path));
  llvm::FileRemover remover(path);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << "<ir_version: 10, opset_import: [\"\" : 20], producer_name: \"pytorch\"> agraph "
                                    << graph;
  ImportOptions options;
  options.microBatchSize = 2;
  return importOnnx(path, options);
}

/// Names and file values of all trained parameters.
std::map<std::string, std::vector<double>> weightsOf(llvm::Expected<ImportedModel> &imported) {
  std::map<std::string, std::vector<double>> values;
  if (!imported) {
    ADD_FAILURE() << llvm::toString(imported.takeError());
    return values;
  }
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("weights", "safetensors", path));
  llvm::FileRemover remover(path);
  EXPECT_FALSE(llvm::errorToBool(writeWeights(*imported, path)));
  for (auto &[name, tensor] : readSafetensors(path))
    values[name] = tensor.values;
  return values;
}

std::vector<std::string> namesOf(llvm::Expected<ImportedModel> &imported) {
  std::vector<std::string> names;
  for (const auto &[name, values] : weightsOf(imported))
    names.push_back(name);
  return names;
}

std::string notesOf(const llvm::Expected<ImportedModel> &imported) { return llvm::join(imported->notes, "\n"); }

using Names = std::vector<std::string>;

TEST(OnnxTorchScript, RecurrentOperandsAreTheParametersOfTheModulesLayers) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2,1] x) => (float[2,1,2,1] z)
    <float[1,3,1] "onnx::GRU_1" = {1,2,3}, float[1,3,1] "onnx::GRU_2" = {4,5,6},
     float[1,6] "onnx::GRU_3" = {11,12,13,14,15,16}, float[1,3,1] "onnx::GRU_4" = {7,8,9},
     float[1,3,1] "onnx::GRU_5" = {1,1,2}, int64[1] one = {1}> {
      ["/r/GRU"] y, h = GRU<hidden_size=1, linear_before_reset=1>(x, "onnx::GRU_1", "onnx::GRU_2", "onnx::GRU_3")
      ["/r/Squeeze"] s = Squeeze(y, one)
      ["/r/GRU_1"] z, g = GRU<hidden_size=1, linear_before_reset=1>(s, "onnx::GRU_4", "onnx::GRU_5")
    })");
  std::map<std::string, std::vector<double>> weights = weightsOf(imported);
  EXPECT_EQ(weights["r.weight_ih_l0"], (std::vector<double>{2, 1, 3}));
  EXPECT_EQ(weights["r.weight_hh_l0"], (std::vector<double>{5, 4, 6}));
  EXPECT_EQ(weights["r.bias_ih_l0"], (std::vector<double>{12, 11, 13}));
  EXPECT_EQ(weights["r.bias_hh_l0"], (std::vector<double>{15, 14, 16}));
  EXPECT_EQ(weights["r.weight_ih_l1"], (std::vector<double>{8, 7, 9}));
  EXPECT_EQ(weights.size(), 6U);
}

TEST(OnnxTorchScript, TheOtherDirectionOfARecurrentLayerIsNamedReverse) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2,1] x) => (float[2,2,2,1] y)
    <float[2,1,1] "onnx::RNN_1" = {1,2}, float[2,1,1] "onnx::RNN_2" = {3,4}, float[2,2] "onnx::RNN_3" = {5,6,7,8}> {
      ["/RNN"] y, h = RNN<hidden_size=1, direction="bidirectional">(x, "onnx::RNN_1", "onnx::RNN_2", "onnx::RNN_3")
    })");
  std::map<std::string, std::vector<double>> weights = weightsOf(imported);
  EXPECT_EQ(weights["weight_ih_l0_reverse"], std::vector<double>{2});
  EXPECT_EQ(weights["bias_hh_l0"], std::vector<double>{6});
  EXPECT_EQ(weights["bias_ih_l0_reverse"], std::vector<double>{7});
  EXPECT_EQ(weights.size(), 8U);
}

TEST(OnnxTorchScript, ARecurrentModuleThatIsCalledTwiceHasOneSetOfParameters) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2,1] x) => (float[2,1,2,1] z)
    <float[1,1,1] "onnx::RNN_1" = {1}, float[1,1,1] "onnx::RNN_2" = {3}, int64[1] one = {1}> {
      ["Identity_0"] "onnx::RNN_3" = Identity("onnx::RNN_1")
      ["Identity_1"] "onnx::RNN_4" = Identity("onnx::RNN_2")
      ["/r/RNN"] y, h = RNN<hidden_size=1>(x, "onnx::RNN_1", "onnx::RNN_2")
      ["/r/Squeeze"] s = Squeeze(y, one)
      ["/r_1/RNN"] z, g = RNN<hidden_size=1>(s, "onnx::RNN_3", "onnx::RNN_4")
    })");
  EXPECT_EQ(namesOf(imported), (Names{"r.weight_hh_l0", "r.weight_ih_l0"}));
}

/// Cross attention without its middle. Its in_proj_bias of zeros was split in two and merged with the output bias.
constexpr llvm::StringLiteral attention = R"((float[2,2] x, float[2,2] k) => (float[2,2] y)
    <float[2,2] "onnx::MatMul_1" = {1,2,3,4}, float[2,4] "onnx::MatMul_2" = {1,2,3,4,5,6,7,8},
     float[2,2] "a.out_proj.weight" = {1,0,0,2}, float[2] "a.out_proj.bias" = {0,0}, float[4] "onnx::Add_5" = {0,0,0,0},
     int64[2] halves = {2,2}> {
      ["Identity_0"] "onnx::Add_4" = Identity("a.out_proj.bias")
      ["/a/MatMul"] q = MatMul(x, "onnx::MatMul_1")
      ["/a/Add"] query = Add("onnx::Add_4", q)
      ["/a/MatMul_1"] kv = MatMul(k, "onnx::MatMul_2")
      ["/a/Add_1"] both = Add("onnx::Add_5", kv)
      ["/a/Split"] key, value = Split<axis=1>(both, halves)
      ["/a/Mul"] scores = Mul(query, key)
      ["/a/Add_2"] mixed = Add(scores, value)
      ["/a/Gemm"] y = Gemm<transB=1>(mixed, "a.out_proj.weight", "a.out_proj.bias")
    })";

TEST(OnnxTorchScript, SlicesOfAnAttentionsInProjectionAreOneWeightAndOneBias) {
  llvm::Expected<ImportedModel> imported = importScripted(attention);
  std::map<std::string, std::vector<double>> weights = weightsOf(imported);
  EXPECT_EQ(weights["a.in_proj_weight"], (std::vector<double>{1, 3, 2, 4, 1, 5, 2, 6, 3, 7, 4, 8}));
  EXPECT_EQ(weights["a.in_proj_bias"], std::vector<double>(6));
  EXPECT_EQ(weights["a.out_proj.bias"], std::vector<double>(2));
  EXPECT_EQ(weights.size(), 4U);
}

TEST(OnnxTorchScript, SlicesOfAnInProjectionAreReadInTheirPlaces) {
  llvm::Expected<ImportedModel> imported = importScripted(attention);
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("weights", "safetensors", path));
  llvm::FileRemover remover(path);
  ASSERT_FALSE(llvm::errorToBool(writeWeights(*imported, path)));
  HostTensor x(Type(DType::f32, {2, 2})), k(Type(DType::f32, {2, 2}));
  x.values = {1, 0, 0, 1};
  k.values = {1, 0, 0, 1};
  HostTensors results = runForward(*imported->module, readSafetensors(path), {{"x", x}, {"k", k}});
  // Row 0: q = (1, 2), k = (1, 2), v = (3, 4); row 1: q = (3, 4), k = (5, 6), v = (7, 8).
  EXPECT_EQ(results.begin()->second.values, (std::vector<double>{4, 16, 22, 64}));
}

TEST(OnnxTorchScript, EqualBiasesOfTwoProductsOfAModuleTrainApart) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2] x) => (float[2,2] y)
    <float[2,2] "onnx::MatMul_1" = {1,2,3,4}, float[2,2] "onnx::MatMul_2" = {5,6,7,8}, float[2] "onnx::Add_3" = {0,0}> {
      ["Identity_0"] "onnx::Add_4" = Identity("onnx::Add_3")
      ["/a/MatMul"] p = MatMul(x, "onnx::MatMul_1")
      ["/a/Add"] q = Add(p, "onnx::Add_3")
      ["/a/MatMul_1"] r = MatMul(q, "onnx::MatMul_2")
      ["/a/Add_1"] y = Add(r, "onnx::Add_4")
    })");
  EXPECT_EQ(namesOf(imported), (Names{"a.bias", "a.weight", "onnx::Add_4", "onnx::MatMul_2"}));
  EXPECT_THAT(notesOf(imported), HasSubstr("they train in their place: 'onnx::Add_*' (2)"));
}

/// Two scales of different modules, one an Identity of the other.
std::vector<std::string> scalesOf(llvm::StringRef values) {
  llvm::Expected<ImportedModel> imported =
      importScripted(("(float[2,8] x) => (float[2,8] y) <float[1,8] \"a.mix\" = {" + values +
                      "}> {\n[\"Identity_0\"] \"b.mix\" = Identity(\"a.mix\")\n[\"/a/Mul\"] z = Mul(x, \"a.mix\")\n" +
                      "[\"/b/Mul\"] y = Mul(z, \"b.mix\")\n}")
                         .str());
  return namesOf(imported);
}

TEST(OnnxTorchScript, WhatTwoModulesComputeByOneFormulaTrainsApart) {
  EXPECT_EQ(scalesOf("0,0.1,0.2,0.3,0.4,0.5,0.6,0.7"), (Names{"a.mix", "b.mix"}));
  EXPECT_EQ(scalesOf("7,6,5,4,4,2,1,0"), (Names{"a.mix", "b.mix"}));
}

TEST(OnnxTorchScript, EqualValuesInNoOrderAreOneParameter) { EXPECT_EQ(scalesOf("7,6,5,4,4,2,1,3"), Names{"a.mix"}); }

/// A Linear layer whose weight the file transposes, and two norms. The second norm's weight is an Identity of the
/// first's. `bias` has the values of the first norm's bias. The second's are zeros.
std::vector<std::string> parametersOfTwoNorms(llvm::StringRef bias) {
  llvm::Expected<ImportedModel> imported = importScripted((R"((float[2,2] x) => (float[2,2] z)
    <float[2] "a.weight" = {1,1}, float[2] "a.bias" = {)" + bias +
                                                           R"(}, float[2] "b.bias" = {0,0},
     float[2,2] "fc.weight" = {5,6,7,8}> {
      ["Identity_0"] "b.weight" = Identity("a.weight")
      ["/fc/Transpose"] t = Transpose<perm=[1,0]>("fc.weight")
      ["/fc/MatMul"] m = MatMul(x, t)
      ["/a/LayerNormalization"] y = LayerNormalization(m, "a.weight", "a.bias")
      ["/b/LayerNormalization"] z = LayerNormalization(y, "b.weight", "b.bias") })")
                                                              .str());
  return namesOf(imported);
}

TEST(OnnxTorchScript, AnIdentityIsATieOnlyWhereEqualValuesStayedApart) {
  // With do_constant_folding=False the exporter keeps transposes and still merges equal values.
  EXPECT_EQ(parametersOfTwoNorms("1,2"), (Names{"a.bias", "a.weight", "b.bias", "b.weight", "fc.weight"}));
  // In training mode it merges nothing: the file has two biases of zeros.
  EXPECT_EQ(parametersOfTwoNorms("0,0"), (Names{"a.bias", "a.weight", "b.bias", "fc.weight"}));
}

TEST(OnnxTorchScript, AWeightThatStartsAsAnIdentityMatrixIsNoMask) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2] x) => (float[2,2] z)
    <float[2,2] "fc.weight" = {1,0,0,1}, float[2,2] "mask" = {1,0,0,1}> {
      ["/fc/Transpose"] t = Transpose<perm=[1,0]>("fc.weight")
      ["/fc/MatMul"] m = MatMul(x, t)
      ["/Mul"] z = Mul(m, "mask") })");
  EXPECT_EQ(namesOf(imported), Names{"fc.weight"});
}

TEST(OnnxTorchScript, AScopeMayLackModulesWhoseForwardIsNotCalled) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2] x) => (float[2,2] y)
    <float[2] "model.decoder.n.weight" = {1,1}, float[2] "model.decoder.n.bias" = {0,0}> {
      ["/decoder/n/LayerNormalization"] y = LayerNormalization(x, "model.decoder.n.weight", "model.decoder.n.bias")
    })");
  EXPECT_EQ(namesOf(imported), (Names{"model.decoder.n.bias", "model.decoder.n.weight"}));
}

TEST(OnnxTorchScript, TheBiasBesideItsOwnWeightKeepsItsNameWhateverTheScope) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2] x) => (float[2,2] z)
    <float[2,2] "m.layers.0.fc.weight" = {1,2,3,4}, float[2,2] "m.layers.1.fc.weight" = {5,6,7,8},
     float[2] "m.layers.0.fc.bias" = {0,0}> {
      ["Identity_0"] "m.layers.1.fc.bias" = Identity("m.layers.0.fc.bias")
      ["/m/fc/Gemm"] y = Gemm(x, "m.layers.0.fc.weight", "m.layers.0.fc.bias")
      ["/m/fc_1/Gemm"] z = Gemm(y, "m.layers.1.fc.weight", "m.layers.1.fc.bias") })");
  EXPECT_EQ(namesOf(imported),
            (Names{"m.layers.0.fc.bias", "m.layers.0.fc.weight", "m.layers.1.fc.bias", "m.layers.1.fc.weight"}));
}

TEST(OnnxTorchScript, AShorterScopeIsAnotherModuleWhereTheOwnOneReadsToo) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2] x) => (float[2,2] y)
    <float[2] "decoder.n.weight" = {1,1}, float[2] "decoder.n.bias" = {0,0}> {
      ["/decoder/n/LayerNormalization"] z = LayerNormalization(x, "decoder.n.weight", "decoder.n.bias")
      ["/n/LayerNormalization"] y = LayerNormalization(z, "decoder.n.weight", "decoder.n.bias")
    })");
  EXPECT_EQ(namesOf(imported), (Names{"decoder.n.bias", "decoder.n.weight", "n.bias", "n.weight"}));
}

/// x * p + x^2 * (1 - q), where the file stores 1 - q.
std::string mixOf(llvm::StringRef p, llvm::StringRef stored, llvm::StringRef others = "", llvm::StringRef sum = "Add") {
  return ("(float[2,2] x) => (float[2,2] y) <float[2] \"m.p\" = {" + p + "}, float[2] \"onnx::Mul_1\" = {" + stored +
          "}" + others + "> {\n[\"/m/Mul\"] a = Mul(x, \"m.p\")\n[\"/m/Mul_1\"] s = Mul(x, x)\n" +
          "[\"/m/Mul_2\"] b = Mul(s, \"onnx::Mul_1\")\n[\"/m/" + sum + "\"] y = " + sum + "(a, b)\n}")
      .str();
}

std::vector<double> resultAtTwo(llvm::Expected<ImportedModel> &imported, std::vector<double> p) {
  if (!imported)
    return {};
  HostTensor x(Type(DType::f32, {2, 2})), parameter(Type(DType::f32, {2}));
  x.values = {2, 2, 2, 2};
  parameter.values = std::move(p);
  HostTensors results = runForward(*imported->module, {{"m.p", parameter}}, {{"x", x}});
  return results.begin()->second.values;
}

TEST(OnnxTorchScript, OneMinusAParameterIsComputedFromIt) {
  llvm::Expected<ImportedModel> imported = importScripted(mixOf("0.25, 0.5", "0.75, 0.5"));
  EXPECT_EQ(namesOf(imported), Names{"m.p"});
  EXPECT_EQ(resultAtTwo(imported, {1, 0}), (std::vector<double>{2, 4, 2, 4}));
}

TEST(OnnxTorchScript, OneMinusAUniformParameterIsKnownByTheSumThatItWeighs) {
  llvm::Expected<ImportedModel> imported = importScripted(mixOf("0.5, 0.5", "0.5, 0.5"));
  EXPECT_EQ(resultAtTwo(imported, {1, 0}), (std::vector<double>{2, 4, 2, 4}));
}

TEST(OnnxTorchScript, EqualValuesAloneMakeNothingOneMinusAParameter) {
  llvm::Expected<ImportedModel> imported = importScripted(mixOf("0.5, 0.5", "0.5, 0.5", "", "Max"));
  EXPECT_EQ(namesOf(imported), Names{"m.p"});
  EXPECT_THAT(notesOf(imported),
              HasSubstr("these float tensors do not train, for nothing says that they are parameters: 'onnx::Mul_1'"));
}

TEST(OnnxTorchScript, OneMinusOneOfSeveralEqualParametersIsRefused) {
  llvm::Expected<ImportedModel> imported = importScripted(
      R"((float[2,2] x) => (float[2,2] y) <float[2] "m.p" = {0.25, 0.5}, float[2] "onnx::Mul_1" = {0.75, 0.5}> {
      ["Identity_0"] "m.q" = Identity("m.p")
      ["/m/Mul"] a = Mul(x, "m.p")
      ["/m/Mul_1"] b = Mul(a, "m.q")
      ["/m/Mul_2"] c = Mul(b, "onnx::Mul_1")
      ["/m/Mul_3"] y = Mul(c, b)
    })");
  ASSERT_FALSE(static_cast<bool>(imported));
  EXPECT_THAT(llvm::toString(imported.takeError()),
              HasSubstr("'m.q' or one of equal values was computed into 'onnx::Mul_1' as one minus it"));
}

TEST(OnnxTorchScript, ConvolutionsOfTheExportersOwnNamesHaveBatchNormFoldedInto) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,1,1,1] x) => (float[2,1,1,1] y)
    <float[1,1,1,1] "onnx::Conv_1" = {1}, float[1] "onnx::Conv_2" = {1}, float[1,1,1,1] "c.weight" = {2},
     float[1] "c.bias" = {0}> {
      ["/stem/stem.0/Conv"] a = Conv(x, "onnx::Conv_1", "onnx::Conv_2")
      ["/c/Conv"] y = Conv(a, "c.weight", "c.bias")
    })");
  EXPECT_EQ(namesOf(imported), (Names{"c.bias", "c.weight", "stem.0.bias", "stem.0.weight"}));
  EXPECT_THAT(notesOf(imported), HasSubstr("warning: the exporter folded BatchNorm"));
  EXPECT_THAT(notesOf(imported), HasSubstr("of 'stem.0'. torch.onnx.export(..., training="));
}

TEST(OnnxTorchScript, WhatTrainsByItsNameAloneIsNamed) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,2] x) => (float[2,2] y)
    <float[2] "0.grid" = {1,2}, float[2] "1.grid" = {1,3}, float[2] "1.norm.bias" = {1,3}> {
      ["/0/Sub"] a = Sub(x, "0.grid")
      ["/1/Sub"] b = Sub(a, "1.grid")
      ["/1/norm/Add"] y = Add(b, "1.norm.bias")
    })");
  EXPECT_EQ(namesOf(imported), (Names{"0.grid", "1.grid", "1.norm.bias"}));
  EXPECT_THAT(notesOf(imported), HasSubstr("because of their names alone, and would be frozen if they were buffers: "
                                           "'*.grid' (2) (--frozen REGEX)"));
}

TEST(OnnxTorchScript, AWeightThatBatchNormStandardisesHasNoRunningStatistics) {
  llvm::Expected<ImportedModel> imported = importScripted(R"((float[2,1,2,1] x) => (float[2,2,1,1] y)
    <float[1,2,2] "onnx::BatchNormalization_1" = {1,3,2,6}, float[2] "onnx::Constant_2" = {1,2},
     float[2] "onnx::Constant_3" = {0,0}, int64[2] axes = {0,2}, int64[4] kernel = {2,1,2,1}> {
      ["/c/ReduceMean"] m = ReduceMean<keepdims=0>("onnx::BatchNormalization_1", axes)
      ["/c/BatchNormalization"] n, rm, rv = BatchNormalization<training_mode=1, momentum=1.0, epsilon=0.0>(
          "onnx::BatchNormalization_1", "onnx::Constant_2", "onnx::Constant_3", m, m)
      ["/c/Reshape"] r = Reshape(n, kernel)
      ["/c/Conv"] y = Conv(x, r)
    })");
  std::map<std::string, std::vector<double>> weights = weightsOf(imported);
  EXPECT_EQ(weights["c.weight"], (std::vector<double>{1, 3, 2, 6}));
  EXPECT_EQ(weights.size(), 1U);
  HostTensors values;
  for (const Parameter &parameter : imported->parameters) {
    values[parameter.name] = HostTensor(parameter.type);
    values[parameter.name].values = weights[parameter.name];
  }
  HostTensor x(Type(DType::f32, {2, 1, 2, 1}));
  x.values = {1, 0, 0, 1};
  // Standardised, the weight is (-1, 1) and, scaled by two, (-2, 2).
  EXPECT_EQ(runForward(*imported->module, values, {{"x", x}}).begin()->second.values,
            (std::vector<double>{-1, -2, 1, 2}));
}

} // namespace

} // namespace fsdpc
