#include "frontend/onnx/import.h"

#include "frontend/onnx/translate_graph.h"
#include "frontend/onnx/unsupported.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

llvm::Expected<RecoveredParameters> loadAndRecover(llvm::StringRef path, const ImportOptions &options,
                                                   ImportedModel &imported) {
  llvm::Expected<std::shared_ptr<OnnxModel>> model = loadModel(path, options.weightsMayBeAbsent);
  if (!model)
    return model.takeError();
  imported.model = std::move(*model);
  llvm::Expected<RecoveredParameters> recovered = recoverParameters({*imported.model, options, imported.remarks});
  if (!recovered)
    return llvm::createStringError(path + ": " + llvm::toString(recovered.takeError()));
  imported.parameters = recovered->parameters;
  return recovered;
}

/// Ops that ImportOptions::trainMode is about.
bool hasTrainingModes(const OnnxModel &model) {
  return llvm::any_of(model.graph().node(), [](const onnx::NodeProto &node) {
    return node.domain().empty() && (node.op_type() == "Dropout" || node.op_type() == "BatchNormalization");
  });
}

} // namespace

llvm::Expected<ImportedModel> importOnnx(llvm::StringRef path, const ImportOptions &options) {
  ImportedModel imported;
  llvm::Expected<RecoveredParameters> recovered = loadAndRecover(path, options, imported);
  if (!recovered)
    return recovered.takeError();
  imported.hasTrainingModes = hasTrainingModes(*imported.model);
  if (std::string nodes = unsupportedNodes(*imported.model); !nodes.empty())
    return llvm::createStringError(path + ": " + nodes);
  llvm::Expected<std::vector<GraphInput>> inputs = bindInputs(*imported.model, options);
  if (!inputs)
    return inputs.takeError();
  llvm::Expected<std::unique_ptr<Module>> module =
      translateGraph(*imported.model, *recovered, *inputs, options, imported.remarks);
  if (!module)
    return module.takeError();
  imported.module = std::move(*module);
  imported.parameters = imported.module->parameters;
  return imported;
}

llvm::Expected<ImportedModel> inspectOnnx(llvm::StringRef path, const ImportOptions &options) {
  ImportedModel imported;
  llvm::Expected<RecoveredParameters> recovered = loadAndRecover(path, options, imported);
  if (!recovered)
    return recovered.takeError();
  return imported;
}

} // namespace fsdpc
