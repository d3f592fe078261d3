// Queries of tests on a model that the dynamo exporter changed: its error, its parameters, its results.
#pragma once

#include "tests/frontend/exported_model.h"
#include "tests/frontend/fixture.h"

namespace fsdpc {

inline ImportOptions batchOfTwo() {
  ImportOptions options;
  options.microBatchSize = 2;
  return options;
}

inline const Parameter *parameterOf(const ImportedModel &imported, llvm::StringRef name) {
  for (const Parameter &parameter : imported.parameters)
    if (parameter.name == name)
      return &parameter;
  return nullptr;
}

inline HostTensors weightsOf(const ImportedModel &imported) {
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("weights", "safetensors", path));
  llvm::FileRemover remover(path);
  EXPECT_FALSE(llvm::errorToBool(writeWeights(imported, path)));
  return readSafetensors(path);
}

/// The import's error, or "" if it succeeds.
inline std::string errorOf(ExportedModel &model, const ImportOptions &options = batchOfTwo()) {
  llvm::Expected<ImportedModel> imported = importOnnx(model.save(), options);
  return imported ? "" : llvm::toString(imported.takeError());
}

inline std::string errorOf(ExportedModel &&model) { return errorOf(model); }

inline std::string notesOf(const ImportedModel &imported) { return llvm::join(imported.notes, "\n"); }

/// x + table, both [2, 2, 3]; the table was folded from parameter `name`.
inline ExportedModel sumWith(llvm::StringRef folded, llvm::ArrayRef<float> values,
                             llvm::ArrayRef<std::string> sources) {
  ExportedModel model(llvm::ArrayRef<std::string>(sources.front()));
  model.input("x", {2, 2, 3});
  model.output("add", {2, 2, 3});
  model.folded(folded, {2, 2, 3}, values, sources);
  model.node("Add", {"x", folded.str()}, "add", "", "aten.add.Tensor](args = (%x, %" + folded.str() + ")");
  return model;
}

/// The result for x = 0: the folded tensor, computed from the parameter.
inline std::vector<double> valuesAtZero(const ImportedModel &imported, llvm::ArrayRef<int64_t> shape) {
  HostTensors batch;
  batch["x"] = HostTensor(Type(DType::f32, Shape(shape.begin(), shape.end())));
  HostTensors results = runForward(*imported.module, weightsOf(imported), batch);
  return results.empty() ? std::vector<double>() : results.begin()->second.values;
}

} // namespace fsdpc
