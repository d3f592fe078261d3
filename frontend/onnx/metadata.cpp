#include "frontend/onnx/metadata.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

namespace fsdpc {

namespace {

constexpr llvm::StringRef classesKey = "pkg.torch.onnx.class_hierarchy";
constexpr llvm::StringRef kindKey = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr llvm::StringRef signatureKey = "pkg.torch.export.ExportedProgram.graph_signature";

/// "layer1/layer1.0/conv1" -> "layer1.0.conv1": the element of a Sequential repeats the path of its list.
std::string scopeOfName(llvm::StringRef name) {
  std::string scope;
  llvm::StringRef list;
  for (llvm::StringRef part : llvm::split(name, '/')) {
    if (!list.empty() && part.size() > list.size() && part.starts_with(list) && part[list.size()] == '.')
      scope.resize(scope.size() - list.size() - (scope.size() > list.size() ? 1 : 0));
    scope += (scope.empty() ? "" : ".") + part.str();
    list = part;
  }
  return scope;
}

/// The scope recorded in the node itself; nullopt if there is none.
std::optional<std::string> ownScope(const onnx::NodeProto &node) {
  std::vector<std::string> scopes = pythonStrings(metadataOf(node, scopesKey));
  if (scopes.size() >= 2 && !llvm::StringRef(scopes.front()).starts_with("_empty_nn_module_stack"))
    return scopes[scopes.size() - 2];
  llvm::StringRef name = node.name();
  if (!name.consume_front("/"))
    return std::nullopt;
  return name.contains('/') ? scopeOfName(name.rsplit('/').first) : "";
}

using Scopes = std::vector<std::optional<std::string>>;

/// Nodes are sorted, so one sweep passes scopes down any chain of nodes without one.
void inheritFromProducers(const onnx::GraphProto &graph, Scopes &scopes) {
  llvm::StringMap<int> producer;
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string &input : graph.node(i).input()) {
      auto found = producer.find(input);
      if (!scopes[i] && found != producer.end() && scopes[found->second])
        scopes[i] = scopes[found->second];
    }
    for (const std::string &output : graph.node(i).output())
      producer[output] = i;
  }
}

void inheritFromConsumers(const onnx::GraphProto &graph, Scopes &scopes) {
  llvm::StringMap<int> consumer;
  for (int i = graph.node_size(); i-- > 0;) {
    for (const std::string &output : graph.node(i).output()) {
      auto found = consumer.find(output);
      if (!scopes[i] && found != consumer.end())
        scopes[i] = scopes[found->second];
    }
    if (scopes[i])
      for (const std::string &input : graph.node(i).input())
        consumer[input] = i;
  }
}

/// "p_fc1_weight: PARAMETER target='fc1.weight'"
void readSignatureLine(llvm::StringRef line, ExportSignature &signature) {
  auto [before, target] = line.split(" target='");
  llvm::StringRef name = target.split('\'').first, placeholder = before.split(':').first.trim(),
                  kind = before.rsplit(": ").second.trim();
  bool isState = kind == "PARAMETER" || kind == "BUFFER";
  if (!isState && !kind.empty() && !kind.ends_with("OUTPUT"))
    signature.otherPlaceholders.insert(placeholder);
  if (name.empty())
    return;
  if (isState)
    signature.placeholders[placeholder] = name.str();
  if (kind == "PARAMETER" && signature.isParameter.insert(name).second) {
    signature.parameters.push_back(name.str());
    signature.placeholderOf[name] = placeholder.str();
  }
  if (kind == "BUFFER" && signature.isBuffer.insert(name).second)
    signature.buffers.push_back(name.str());
}

} // namespace

std::vector<std::string> moduleScopes(const onnx::GraphProto &graph) {
  Scopes scopes;
  scopes.reserve(graph.node_size());
  for (const onnx::NodeProto &node : graph.node())
    scopes.push_back(ownScope(node));
  inheritFromProducers(graph, scopes);
  inheritFromConsumers(graph, scopes);
  std::vector<std::string> result;
  result.reserve(scopes.size());
  for (std::optional<std::string> &scope : scopes)
    result.push_back(scope ? std::move(*scope) : "");
  return result;
}

std::map<std::string, std::string> moduleClasses(const onnx::GraphProto &graph) {
  std::map<std::string, std::string> result;
  for (const onnx::NodeProto &node : graph.node()) {
    std::vector<std::string> scopes = pythonStrings(metadataOf(node, scopesKey)),
                             classes = pythonStrings(metadataOf(node, classesKey));
    if (scopes.size() != classes.size())
      continue;
    // The first entry is the model itself, the last one the operation.
    for (size_t i = 1; i + 1 < scopes.size(); ++i)
      if (!scopes[i].empty())
        result.try_emplace(scopes[i], classes[i]);
  }
  return result;
}

std::vector<std::string> pythonStrings(llvm::StringRef text) {
  std::vector<std::string> result;
  text = text.trim();
  if (!text.consume_front("[") || !text.consume_back("]"))
    return result;
  while (!text.empty()) {
    char quote = text.front();
    if (quote != '\'' && quote != '"') {
      text = text.drop_front();
      continue;
    }
    std::string element;
    size_t i = 1;
    for (; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size())
        ++i;
      element += text[i];
    }
    result.push_back(std::move(element));
    text = text.drop_front(std::min(i + 1, text.size()));
  }
  return result;
}

void markStopsGradient(onnx::NodeProto &node) {
  onnx::StringStringEntryProto &entry = *node.add_metadata_props();
  entry.set_key(stopGradientKey.str());
  entry.set_value("1");
}

ExportSignature exportSignature(const onnx::GraphProto &graph) {
  ExportSignature signature;
  llvm::StringRef text = metadataOf(graph, signatureKey);
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    readSignatureLine(line, signature);
    text = rest;
  }
  for (const auto *list : {&graph.value_info(), &graph.input()})
    for (const onnx::ValueInfoProto &value : *list) {
      if (llvm::StringRef kind = metadataOf(value, kindKey); !kind.empty())
        signature.kinds[value.name()] = kind.str();
      if (llvm::StringRef folded = metadataOf(value, foldedKey); !folded.empty())
        signature.foldedFrom[value.name()] = pythonStrings(folded);
    }
  for (const onnx::TensorProto &tensor : graph.initializer())
    if (llvm::StringRef folded = metadataOf(tensor, foldedKey); !folded.empty())
      signature.foldedFrom[tensor.name()] = pythonStrings(folded);
  return signature;
}

std::string parameterOf(const ExportSignature &signature, const onnx::TensorProto &tensor) {
  auto isState = [&](llvm::StringRef name) {
    return signature.isParameter.contains(name) || signature.isBuffer.contains(name);
  };
  auto folded = signature.foldedFrom.find(tensor.name());
  if (folded == signature.foldedFrom.end())
    return isState(tensor.name()) ? tensor.name() : "";
  std::string found;
  for (const std::string &source : folded->second) {
    if (!isState(source))
      continue;
    if (!found.empty())
      return "";
    found = source;
  }
  return found;
}

void copyFolding(const ExportSignature &signature, const onnx::TensorProto &from, onnx::TensorProto &copy,
                 llvm::StringRef name) {
  auto folded = signature.foldedFrom.find(from.name());
  std::string parameter = parameterOf(signature, from);
  if (folded == signature.foldedFrom.end() || parameter.empty())
    return;
  std::vector<std::string> sources = folded->second;
  std::replace(sources.begin(), sources.end(), parameter, name.str());
  setFoldedFrom(copy, sources);
}

void setFoldedFrom(onnx::TensorProto &tensor, llvm::ArrayRef<std::string> sources) {
  onnx::StringStringEntryProto *entry = tensor.add_metadata_props();
  entry->set_key(foldedKey.str());
  entry->set_value("['" + llvm::join(sources, "', '") + "']");
}

std::vector<std::string> missingParameters(const onnx::GraphProto &graph, const ExportSignature &signature) {
  llvm::StringSet<> present, inFile;
  for (const onnx::TensorProto &tensor : graph.initializer())
    inFile.insert(tensor.name());
  for (const auto &folded : signature.foldedFrom)
    if (inFile.contains(folded.first()))
      present.insert(folded.second.begin(), folded.second.end());
  std::vector<std::string> missing;
  for (const auto *list : {&signature.parameters, &signature.buffers})
    for (const std::string &name : *list)
      if (!present.contains(name) && !inFile.contains(name))
        missing.push_back(name);
  return missing;
}

bool isExporterName(llvm::StringRef name) {
  return name.starts_with("onnx::") || name.starts_with("/") || name.starts_with("val_") || name.empty() ||
         llvm::all_of(name, llvm::isDigit);
}

llvm::StringRef moduleOf(llvm::StringRef name) {
  size_t dot = name.rfind('.');
  return dot == llvm::StringRef::npos ? "" : name.take_front(dot);
}

llvm::StringRef leafOf(llvm::StringRef name) {
  size_t dot = name.rfind('.');
  return dot == llvm::StringRef::npos ? name : name.drop_front(dot + 1);
}

bool isWithin(llvm::StringRef inner, llvm::StringRef outer) {
  return outer.empty() || inner == outer || (inner.starts_with(outer) && inner[outer.size()] == '.');
}

bool isScopeOf(llvm::StringRef scope, llvm::StringRef module) {
  return module == scope || (!scope.empty() && module.size() > scope.size() && module.ends_with(scope) &&
                             module[module.size() - scope.size() - 1] == '.');
}

llvm::StringRef withoutCallCount(llvm::StringRef scope) {
  llvm::StringRef digits = scope;
  while (!digits.empty() && llvm::isDigit(digits.back()))
    digits = digits.drop_back();
  bool isCount = digits.size() < scope.size() && (digits.ends_with("_") || digits.ends_with("@"));
  return isCount ? digits.drop_back() : scope;
}

std::string withoutDigits(llvm::StringRef scope) {
  std::string result;
  llvm::copy_if(scope, std::back_inserter(result), [](char c) { return !llvm::isDigit(c); });
  return result;
}

} // namespace fsdpc
