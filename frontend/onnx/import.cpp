#include "frontend/onnx/import.h"

#include "frontend/onnx/control_flow.h"
#include "frontend/onnx/expand_functions.h"
#include "frontend/onnx/translate_graph.h"
#include "frontend/onnx/unsupported.h"

namespace fsdpc {

namespace {

/// Control flow goes before parameters are looked for: what only a body reads is one too.
llvm::Error removeControlFlow(OnnxModel &model, const ImportOptions &options) {
  if (!hasControlFlow(model))
    return llvm::Error::success();
  if (std::string nodes = unsupportedNodes(model, /*mayExpand=*/true); !nodes.empty())
    return llvm::createStringError(model.path + ": " + nodes);
  if (llvm::Error error = unrollControlFlow(model, options))
    return error;
  return expandFunctions(model);
}

/// `isCompiled`: else the parameters alone matter, and a file whose loops need more options is looked at as it is.
llvm::Expected<RecoveredParameters> loadAndRecover(llvm::StringRef path, const ImportOptions &options,
                                                   ImportedModel &imported, bool isCompiled) {
  llvm::Expected<std::shared_ptr<OnnxModel>> model = loadModel(path, options.weightsMayBeAbsent);
  if (!model)
    return model.takeError();
  imported.model = std::move(*model);
  if (llvm::Error error = removeControlFlow(*imported.model, options)) {
    if (isCompiled)
      return error;
    llvm::consumeError(std::move(error));
  }
  llvm::Expected<RecoveredParameters> recovered = recoverParameters({*imported.model, options, imported.remarks});
  if (!recovered)
    return llvm::createStringError(path + ": " + llvm::toString(recovered.takeError()));
  imported.parameters = recovered->parameters;
  return recovered;
}

} // namespace

llvm::Expected<ImportedModel> importOnnx(llvm::StringRef path, const ImportOptions &options) {
  ImportedModel imported;
  llvm::Expected<RecoveredParameters> recovered = loadAndRecover(path, options, imported, /*isCompiled=*/true);
  if (!recovered)
    return recovered.takeError();
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
  llvm::Expected<RecoveredParameters> recovered = loadAndRecover(path, options, imported, /*isCompiled=*/false);
  if (!recovered)
    return recovered.takeError();
  return imported;
}

} // namespace fsdpc
