// The import of every fixture computes what PyTorch computed, before and after a round trip through OUT/model.onnx.
#include "ir/verify.h"
#include "tests/frontend/fixture.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"

namespace fsdpc {

namespace {

class Fixtures : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override { ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("fsdpc-onnx", folder)); }
  void TearDown() override { llvm::sys::fs::remove_directories(folder); }

  std::string scratch(llvm::StringRef name) const {
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, name);
    return path.str().str();
  }

  ImportedModel import(llvm::StringRef path) const {
    ImportOptions options;
    options.microBatchSize = 8;
    options.trainMode = TrainMode::eval;
    llvm::Expected<ImportedModel> imported = importOnnx(path, options);
    if (!imported) {
      ADD_FAILURE() << llvm::toString(imported.takeError());
      return {};
    }
    return std::move(*imported);
  }

  HostTensors weightsOf(const ImportedModel &imported) const {
    std::string path = scratch("weights.safetensors");
    if (llvm::Error error = writeWeights(imported, path))
      ADD_FAILURE() << llvm::toString(std::move(error));
    return readSafetensors(path);
  }

  llvm::SmallString<128> folder;
};

/// Writes the data file as a trained program would: each parameter in the file's layout at its offset.
void writeData(const ImportedModel &imported, const HostTensors &weights, const ExternalLayout &layout,
               llvm::StringRef path) {
  std::vector<float> data(layout.totalBytes / sizeof(float));
  for (const ExternalLayout::Entry &entry : layout.entries) {
    const Parameter &parameter = *llvm::find_if(
        imported.parameters, [&](const Parameter &candidate) { return candidate.name == entry.parameter; });
    const HostTensor &value = weights.at(parameter.name);
    bool isTransposed = parameter.permutation == Shape{1, 0};
    int64_t rows = value.type.dim(0), columns = value.type.elements() / rows;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < columns; ++k)
        data[entry.offsetBytes / sizeof(float) + (isTransposed ? k * rows + i : i * columns + k)] =
            static_cast<float>(value.values[i * columns + k]);
  }
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  ASSERT_FALSE(error);
  out.write(reinterpret_cast<const char *>(data.data()), data.size() * sizeof(float));
}

TEST_P(Fixtures, ComputesTheReferenceLogits) {
  ImportedModel imported = import(fixturePath(GetParam(), "model.onnx"));
  ASSERT_TRUE(imported.module);
  llvm::Error fault = verify(*imported.module);
  ASSERT_FALSE(fault) << llvm::toString(std::move(fault));
  HostTensors batch = readSafetensors(fixturePath(GetParam(), "batch.safetensors"));
  HostTensors results = runForward(*imported.module, weightsOf(imported), batch);
  ASSERT_EQ(results.size(), 1u);
  HostTensors reference = readSafetensors(fixturePath(GetParam(), "reference.safetensors"));
  EXPECT_LT(deviation(results.begin()->second, reference.at("logits")), 1e-6);
}

TEST_P(Fixtures, SurvivesTheRepairedModel) {
  ImportedModel imported = import(fixturePath(GetParam(), "model.onnx"));
  ASSERT_TRUE(imported.module);
  HostTensors weights = weightsOf(imported);
  llvm::Expected<ExternalLayout> layout = writeRepairedModel(imported, scratch("model.onnx"), "model.data");
  ASSERT_TRUE(static_cast<bool>(layout)) << llvm::toString(layout.takeError());
  writeData(imported, weights, *layout, scratch("model.data"));
  ImportedModel again = import(scratch("model.onnx"));
  ASSERT_TRUE(again.module);
  HostTensors weightsAgain = weightsOf(again);
  ASSERT_EQ(weightsAgain.size(), weights.size());
  for (const auto &[name, value] : weights)
    EXPECT_EQ(value.values, weightsAgain[name].values) << name;
  EXPECT_TRUE(llvm::none_of(again.remarks, [](llvm::StringRef remark) { return remark.contains("merged"); }));
}

INSTANTIATE_TEST_SUITE_P(All, Fixtures,
                         testing::Values("mlp", "mlp_ts", "mlp_ts_eval", "mlp_seq_ts_eval", "mnist_cnn",
                                         "mnist_cnn_nodropout", "gpt2_tiny", "gpt2_fresh", "bigmodel_tiny"),
                         [](const auto &info) { return std::string(info.param); });

} // namespace

} // namespace fsdpc
