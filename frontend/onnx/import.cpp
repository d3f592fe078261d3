#include "frontend/onnx/import.h"

#include "frontend/onnx/complete.h"
#include "frontend/onnx/control_flow.h"
#include "frontend/onnx/drawn_masks.h"
#include "frontend/onnx/expand_functions.h"
#include "frontend/onnx/inputs.h"
#include "frontend/onnx/kept_logits.h"
#include "frontend/onnx/subgraphs.h"
#include "frontend/onnx/training_modes.h"
#include "frontend/onnx/translate_graph.h"
#include "frontend/onnx/unsupported.h"
#include "ir/usage_error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

constexpr size_t maxNames = 8;

std::string namesText(llvm::ArrayRef<std::string> names) {
  std::string text = llvm::join(names.take_front(maxNames), ", ");
  return names.size() <= maxNames ? text : text + " and " + std::to_string(names.size() - maxNames) + " more";
}

std::vector<std::string> describeAbsentData(const OnnxModel &model, llvm::ArrayRef<Parameter> parameters) {
  llvm::StringMap<const onnx::TensorProto *> tensors;
  for (const onnx::TensorProto &tensor : model.graph().initializer())
    tensors[tensor.name()] = &tensor;
  std::map<std::string, std::vector<std::string>> lost; ///< by file
  for (const Parameter &parameter : parameters)
    if (const onnx::TensorProto *tensor = tensors.lookup(parameter.initializer); tensor && isAbsent(model, *tensor))
      lost[externalFile(model, *tensor)].push_back(parameter.name);
  std::vector<std::string> sentences;
  for (const auto &[file, names] : lost)
    sentences.push_back("'" + file + "' does not exist; without it " + std::to_string(names.size()) + " of " +
                        std::to_string(parameters.size()) +
                        " parameters start as the file's training info or PyTorch's rules say (plan.json lists how): " +
                        namesText(names));
  return sentences;
}

/// Inputs that no node reads. If two inputs were one tensor (labels=ids), the dynamo exporter reads only one of them.
std::vector<std::string> describeUnreadInputs(const OnnxModel &model) {
  llvm::StringSet<> read;
  forEachGraph(model.graph(), [&](const onnx::GraphProto &graph) {
    for (const onnx::NodeProto &node : graph.node())
      for (const std::string &input : node.input())
        read.insert(input);
    for (const onnx::ValueInfoProto &output : graph.output())
      read.insert(output.name());
  });
  std::vector<std::string> sentences;
  for (const onnx::ValueInfoProto *input : dataInputs(model.graph()))
    if (!read.contains(input->name()))
      sentences.push_back(
          "nothing reads input '" + input->name() +
          "', so no data are fed to it; where the model does read it, it was the same tensor as another "
          "input when it was exported: export with a copy (labels=ids.clone())");
  return sentences;
}

/// Removes control flow before the search for parameters, because a body alone may read a parameter.
llvm::Error removeControlFlow(OnnxModel &model, const ImportOptions &options) {
  if (!hasControlFlow(model))
    return llvm::Error::success();
  if (std::string nodes = unsupportedNodes(model, /*mayExpand=*/true); !nodes.empty())
    return llvm::createStringError(model.path + ": " + nodes);
  if (llvm::Error error = unrollControlFlow(model, options))
    return error;
  return expandFunctions(model);
}

/// Prefixes an error in the file with its path. Leaves errors in the command line as they are.
llvm::Error of(llvm::StringRef path, llvm::Error error) {
  if (error.isA<UsageError>())
    return error;
  return llvm::createStringError(path + ": " + llvm::toString(std::move(error)));
}

/// If not `isCompiled`, only the parameters matter, and a file whose loops need more options is inspected as it is.
llvm::Expected<RecoveredParameters> loadAndRecover(llvm::StringRef path, const ImportOptions &options,
                                                   ImportedModel &imported, bool isCompiled) {
  llvm::Expected<std::shared_ptr<OnnxModel>> model = loadModel(path, options.weightsMayBeAbsent);
  if (!model)
    return model.takeError();
  imported.model = std::move(*model);
  if (options.facts)
    imported.model->facts = options.facts;
  if (std::string note = keepAllLogits(*imported.model); !note.empty())
    imported.notes.push_back(note);
  if (llvm::Error error = removeControlFlow(*imported.model, options)) {
    if (isCompiled)
      return error;
    llvm::consumeError(std::move(error));
  }
  llvm::Expected<RecoveredParameters> recovered = recoverParameters({*imported.model, options, imported.remarks});
  imported.model->facts->save();
  if (!recovered)
    return of(path, recovered.takeError());
  imported.parameters = recovered->parameters;
  llvm::append_range(imported.notes, imported.model->notes);
  llvm::append_range(imported.notes, describeUnreadInputs(*imported.model));
  llvm::append_range(imported.notes, describeAbsentData(*imported.model, imported.parameters));
  return recovered;
}

/// Nodes that still draw random numbers in evaluation are no dropout that the import recognizes, so the user is told
/// about them.
std::string describeDrawn(const Module &module) {
  std::vector<std::string> names = drawingNodes(*module.function(FunctionKind::forward));
  if (names.empty())
    return "";
  return "--train_mode eval turns off dropout and stochastic depth; these nodes are neither, and draw new random "
         "numbers "
         "for every sample and step, other ones than PyTorch: " +
         namesText(names);
}

/// True if the graph has ops that ImportOptions::trainMode affects.
bool hasTrainingModes(const OnnxModel &model) {
  return llvm::any_of(model.graph().node(), [](const onnx::NodeProto &node) {
    return node.domain().empty() && (node.op_type() == "Dropout" || node.op_type() == "BatchNormalization");
  });
}

} // namespace

llvm::Expected<ImportedModel> importOnnx(llvm::StringRef path, const ImportOptions &options) {
  ImportedModel imported;
  llvm::Expected<RecoveredParameters> recovered = loadAndRecover(path, options, imported, /*isCompiled=*/true);
  if (!recovered)
    return recovered.takeError();
  if (llvm::Error error = refuseLost(*imported.model))
    return of(path, std::move(error));
  llvm::append_range(imported.notes, restoreTrainingModes(*imported.model, options.trainMode));
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
  if (std::string note = options.trainMode == TrainMode::eval ? describeDrawn(*imported.module) : ""; !note.empty())
    imported.notes.push_back(note);
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
