#include "frontend/onnx/inspect.h"

#include "frontend/onnx/inputs.h"
#include "frontend/onnx/translate/table.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

namespace fsdpc {

namespace {

llvm::json::Object valueJson(const onnx::ValueInfoProto &value) {
  llvm::json::Array dims;
  for (int i = 0; i < value.type().tensor_type().shape().dim_size(); ++i)
    dims.push_back(dimText(value, i));
  return llvm::json::Object{{"name", llvm::json::fixUTF8(value.name())},
                            {"type", typeText(value.type().tensor_type().elem_type())},
                            {"dims", std::move(dims)}};
}

llvm::json::Object initialJson(const Parameter &parameter) {
  if (parameter.hasValue)
    return llvm::json::Object{{"from", "file"}};
  if (!parameter.initial)
    return llvm::json::Object{{"from", "rule"}};
  return llvm::json::Object{{"from", nameOf(parameter.initial->kind)},
                            {"first", parameter.initial->first},
                            {"second", parameter.initial->second}};
}

llvm::json::Object parameterJson(const Parameter &parameter, const InitializerRole &role) {
  llvm::json::Array uses, names;
  for (const ParameterUse &use : parameter.uses)
    uses.push_back(llvm::json::fixUTF8(use.node) + ":" + std::to_string(use.input));
  for (const std::string &name : parameter.otherNames)
    names.push_back(llvm::json::fixUTF8(name));
  const bool isAsked = role.kind != InitializerKind::parameter;
  return llvm::json::Object{{"name", llvm::json::fixUTF8(parameter.name)},
                            {"dtype", nameOf(parameter.type.dtype())},
                            {"shape", llvm::json::Array(parameter.type.shape())},
                            {"trainable", parameter.trainable},
                            {"known_by", isAsked ? "--trainable" : role.origin},
                            {"initializer", llvm::json::fixUTF8(parameter.initializer)},
                            {"uses", std::move(uses)},
                            {"other_names", std::move(names)},
                            {"unit", llvm::json::fixUTF8(parameter.unit)},
                            {"initial", initialJson(parameter)},
                            {"repaired", llvm::json::fixUTF8(parameter.recovered)}};
}

/// `name`: [ ... ] with one line for each item.
void printList(llvm::StringRef name, llvm::ArrayRef<llvm::json::Value> items, llvm::raw_ostream &out) {
  out << ",\n\"" << name << "\": [";
  llvm::ListSeparator comma(",");
  for (const llvm::json::Value &item : items)
    out << comma << "\n " << item;
  out << (items.empty() ? "]" : "\n]");
}

std::vector<llvm::json::Value> opsJson(const OnnxModel &model) {
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  for (const onnx::NodeProto &node : model.graph().node())
    ++counts[{domainOf(node).str(), node.op_type()}];
  std::vector<llvm::json::Value> ops;
  for (const auto &[op, count] : counts)
    ops.push_back(
        llvm::json::Object{{"domain", op.first},
                           {"op", op.second},
                           {"count", count},
                           {"supported", findTranslation(op.first, op.second, model.opset(op.first)) != nullptr}});
  return ops;
}

std::vector<llvm::json::Value> unitsJson(llvm::ArrayRef<Unit> units) {
  std::vector<llvm::json::Value> result;
  for (const Unit &unit : units)
    result.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(unit.name)}, {"source", unit.source}});
  return result;
}

std::vector<llvm::json::Value> sentencesJson(const ImportedModel &imported) {
  std::vector<llvm::json::Value> sentences;
  for (const std::vector<std::string> *list : {&imported.notes, &imported.remarks})
    for (const std::string &sentence : *list)
      sentences.push_back(llvm::json::fixUTF8(sentence));
  return sentences;
}

} // namespace

void printInspectionJson(const ImportedModel &imported, llvm::ArrayRef<Unit> units, llvm::raw_ostream &out) {
  const OnnxModel &model = *imported.model;
  const llvm::StringMap<InitializerRole> roles = initializerRoles(imported);
  std::vector<llvm::json::Value> inputs, outputs, parameters, untrainable;
  for (const onnx::ValueInfoProto *value : dataInputs(model.graph()))
    inputs.push_back(valueJson(*value));
  for (const onnx::ValueInfoProto &value : model.graph().output())
    outputs.push_back(valueJson(value));
  for (const Parameter &parameter : imported.parameters)
    if (!parameter.isBuffer)
      parameters.push_back(parameterJson(parameter, roles.find(parameter.initializer)->second));
  for (const std::string &name : model.tracedSeparately)
    untrainable.push_back(
        llvm::json::Object{{"name", name}, {"why", "read under torch.no_grad() or torch.autocast()"}});
  for (const LostParameter &lost : model.lost)
    untrainable.push_back(llvm::json::Object{{"name", lost.name}, {"why", lost.why}});
  out << "{\"file\": " << llvm::json::Value(llvm::json::fixUTF8(model.path))
      << ",\n\"producer\": " << llvm::json::Value(llvm::json::fixUTF8(model.proto.producer_name()))
      << ",\n\"opset\": " << model.opset("");
  printList("inputs", inputs, out);
  printList("outputs", outputs, out);
  printList("ops", opsJson(model), out);
  printList("parameters", parameters, out);
  printList("units", unitsJson(units), out);
  printList("remarks", sentencesJson(imported), out);
  printList("untrainable", untrainable, out);
  out << "\n}\n";
}

} // namespace fsdpc
