#include "frontend/onnx/other_names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

std::vector<std::pair<llvm::StringRef, llvm::StringRef>> statedNames(const onnx::ModelProto &proto) {
  std::vector<std::pair<llvm::StringRef, llvm::StringRef>> stated;
  for (const onnx::StringStringEntryProto &entry : proto.metadata_props())
    if (entry.key() == otherNamesKey)
      for (llvm::StringRef line : llvm::split(entry.value(), '\n'))
        if (const auto [name, other] = line.split('\t'); !other.empty())
          stated.emplace_back(name, other);
  return stated;
}

OtherNames::OtherNames(const OnnxModel &model, const GraphIndex &index, const ExportSignature &signature)
    : model(model), index(index), signature(signature) {
  for (const std::string &name : missingParameters(index.graph, signature))
    missing.insert(name);
  for (const auto &tie : model.tied)
    tiedTo[tie.second].push_back(tie.first().str());
}

std::vector<std::string> OtherNames::of(const onnx::TensorProto &initializer, llvm::StringRef name) const {
  std::vector<std::string> names = tiedTo.lookup(initializer.name());
  llvm::append_range(names, ofReaders(initializer.name(), name));
  llvm::erase_if(names, [&](const std::string &other) { return other == name || isExporterName(other); });
  llvm::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void OtherNames::addUnread(std::vector<Parameter> &parameters) const {
  const auto isShared = [](const Parameter &parameter) { return !parameter.otherNames.empty(); };
  if (llvm::count_if(parameters, isShared) != 1)
    return;
  Parameter &shared = *llvm::find_if(parameters, isShared);
  for (const std::string &name : missingParameters(index.graph, signature))
    if (leafOf(name) == leafOf(shared.name) && !llvm::is_contained(shared.otherNames, name))
      shared.otherNames.push_back(name);
}

void OtherNames::addStated(std::vector<Parameter> &parameters) const {
  llvm::StringMap<Parameter *> byName;
  for (Parameter &parameter : parameters)
    byName[parameter.name] = &parameter;
  for (const auto &[name, other] : statedNames(model.proto)) {
    Parameter *parameter = byName.lookup(name);
    if (parameter && other != name && !llvm::is_contained(parameter->otherNames, other))
      parameter->otherNames.push_back(other.str());
  }
}

std::vector<std::string> OtherNames::ofReaders(llvm::StringRef initializer, llvm::StringRef name) const {
  std::vector<std::string> names;
  llvm::ArrayRef<InitializerRead> reads = index.readsOf(initializer);
  // The scope of a single reader may be shorter than the module's path.
  if (reads.size() < 2)
    return names;
  for (const InitializerRead &read : reads) {
    const llvm::StringRef scope = withoutCallCount(index.scopes[read.node]);
    const std::string other = (scope + "." + leafOf(name)).str();
    if (!scope.empty() && !isScopeOf(scope, moduleOf(name)) && (!signature.known() || missing.contains(other)))
      names.push_back(other);
  }
  return names;
}

} // namespace fsdpc
