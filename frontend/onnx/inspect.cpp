#include "frontend/onnx/import.h"

#include "frontend/onnx/classify.h"
#include "frontend/onnx/inputs.h"
#include "frontend/onnx/translate/table.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include <set>

namespace fsdpc {

namespace {

/// A table: every column as wide as its longest cell, two spaces between.
class Table {
public:
  void row(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
  void print(llvm::raw_ostream &out) const {
    std::vector<size_t> widths;
    for (const auto &cells : rows) {
      widths.resize(std::max(widths.size(), cells.size()));
      for (size_t i = 0; i < cells.size(); ++i)
        widths[i] = std::max(widths[i], cells[i].size());
    }
    for (const auto &cells : rows) {
      std::string line = " ";
      for (size_t i = 0; i < cells.size(); ++i)
        line += " " + (i + 1 < cells.size() ? cells[i] + std::string(widths[i] - cells[i].size() + 1, ' ') : cells[i]);
      out << llvm::StringRef(line).rtrim() << '\n';
    }
  }

private:
  std::vector<std::vector<std::string>> rows;
};

std::string typeText(const onnx::ValueInfoProto &value) {
  if (!value.type().has_tensor_type())
    return "no tensor";
  std::vector<std::string> dims;
  for (int i = 0; i < value.type().tensor_type().shape().dim_size(); ++i)
    dims.push_back(dimText(value, i));
  return fsdpc::typeText(value.type().tensor_type().elem_type()) + "[" + llvm::join(dims, ",") + "]";
}

void printValues(llvm::StringRef title, llvm::ArrayRef<const onnx::ValueInfoProto *> values, llvm::raw_ostream &out) {
  out << title << '\n';
  Table table;
  for (const onnx::ValueInfoProto *value : values)
    table.row({value->name(), typeText(*value)});
  table.print(out);
}

void printOps(const OnnxModel &model, llvm::raw_ostream &out) {
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  for (const onnx::NodeProto &node : model.graph().node())
    ++counts[{domainOf(node).str(), node.op_type()}];
  out << "ops\n";
  Table table;
  for (const auto &[op, count] : counts) {
    const auto &[domain, name] = op;
    bool isSupported = findTranslation(domain, name, model.opset(domain));
    table.row({domain.empty() ? name : domain + ":" + name, std::to_string(count), isSupported ? "" : "not supported"});
  }
  table.print(out);
}

std::string usesText(const Parameter &parameter) {
  std::vector<std::string> uses;
  for (const ParameterUse &use : parameter.uses)
    uses.push_back(use.node + ":" + std::to_string(use.input));
  return llvm::join(uses, ",");
}

/// How a parameter is initialized.
std::string startText(const Parameter &parameter) {
  if (parameter.hasValue)
    return "file";
  if (!parameter.initial)
    return "rule";
  const InitialValues &initial = *parameter.initial;
  std::string text = nameOf(initial.kind).str();
  llvm::raw_string_ostream out(text);
  out << llvm::format(" %g", initial.first);
  if (initial.kind != InitialKind::constant)
    out << llvm::format(" %g", initial.second);
  return text;
}

void printParameters(const ImportedModel &imported, const llvm::StringMap<InitializerRole> &roles,
                     llvm::raw_ostream &out) {
  int64_t elements = 0, count = 0;
  for (const Parameter &parameter : imported.parameters)
    if (!parameter.isBuffer) {
      elements += parameter.type.elements();
      ++count;
    }
  out << llvm::formatv("parameters: {0}, {1} elements\n", count, elements);
  Table table;
  table.row({"name", "type", "trained", "known by", "initializer", "read by", "starts", "repaired"});
  for (const Parameter &parameter : imported.parameters) {
    if (parameter.isBuffer)
      continue;
    const InitializerRole &role = roles.find(parameter.initializer)->second;
    bool isAsked = role.kind != InitializerKind::parameter;
    table.row({parameter.name, toString(parameter.type), parameter.trainable ? "yes" : "no",
               isAsked ? "--trainable" : role.origin, parameter.initializer, usesText(parameter), startText(parameter),
               parameter.recovered});
  }
  table.print(out);
}

/// Buffers, and constants large enough to be mistaken for parameters.
void printOthers(const ImportedModel &imported, const llvm::StringMap<InitializerRole> &roles, llvm::raw_ostream &out) {
  llvm::StringSet<> isParameter;
  for (const Parameter &parameter : imported.parameters)
    if (!parameter.isBuffer)
      isParameter.insert(parameter.initializer);
  Table buffers, constants;
  int64_t constantCount = 0;
  for (const onnx::TensorProto &tensor : imported.model->graph().initializer()) {
    if (isParameter.contains(tensor.name()))
      continue;
    std::optional<DType> dtype = dtypeOf(tensor.data_type());
    std::vector<std::string> row = {tensor.name(), toString(Type(dtype.value_or(DType::f32), shapeOf(tensor)))};
    bool isBuffer = roles.find(tensor.name())->second.kind == InitializerKind::buffer;
    constantCount += !isBuffer;
    if (isBuffer)
      buffers.row(row);
    else if (dtype && isFloat(*dtype) && elementsOf(tensor) > 1)
      constants.row(row);
  }
  out << "buffers\n";
  buffers.print(out);
  out << "constants: " << constantCount << "; float tensors among them\n";
  constants.print(out);
}

/// Prints the numbered modules that repeat; units are made of these.
void printBlocks(llvm::ArrayRef<Parameter> parameters, llvm::raw_ostream &out) {
  std::map<std::string, std::set<std::string>> numbers;
  for (const Parameter &parameter : parameters) {
    llvm::SmallVector<llvm::StringRef, 8> parts;
    llvm::StringRef(parameter.name).split(parts, '.');
    for (size_t i = 0; i < parts.size(); ++i)
      if (llvm::all_of(parts[i], llvm::isDigit))
        numbers[llvm::join(llvm::ArrayRef(parts).take_front(i), ".")].insert(parts[i].str());
  }
  out << "repeated blocks\n";
  for (const auto &[prefix, found] : numbers)
    if (found.size() > 1)
      out << "  " << prefix << ".*  " << found.size() << " times\n";
}

/// The remark without the names that it quotes.
std::string patternOf(llvm::StringRef remark) {
  std::string pattern;
  bool isQuoted = false;
  for (char c : remark) {
    isQuoted ^= c == '\'';
    if (!isQuoted)
      pattern += c;
  }
  return pattern;
}

/// Prints one line per pattern: the first remark of its kind.
void printRemarks(llvm::ArrayRef<std::string> remarks, llvm::raw_ostream &out) {
  llvm::StringMap<int64_t> counts;
  for (const std::string &remark : remarks)
    ++counts[patternOf(remark)];
  for (const std::string &remark : remarks) {
    int64_t &count = counts[patternOf(remark)];
    if (count == 0)
      continue;
    out << "  " << remark;
    if (count > 1)
      out << " (and " << count - 1 << " more like it)";
    out << '\n';
    count = 0;
  }
}

} // namespace

void printInspection(const ImportedModel &imported, llvm::raw_ostream &out) {
  const OnnxModel &model = *imported.model;
  GraphIndex index(model.graph());
  std::vector<InitializerRole> all = classifyInitializers(model, index, exportSignature(model.graph()));
  llvm::StringMap<InitializerRole> roles;
  for (int i = 0; i < model.graph().initializer_size(); ++i)
    roles[model.graph().initializer(i).name()] = all[i];
  out << model.path << '\n';
  out << llvm::formatv("  written by {0} {1}, IR version {2}, opset {3}\n", model.proto.producer_name(),
                       model.proto.producer_version(), model.proto.ir_version(), model.opset(""));
  std::vector<const onnx::ValueInfoProto *> results;
  for (const onnx::ValueInfoProto &value : model.graph().output())
    results.push_back(&value);
  printValues("inputs", dataInputs(model.graph()), out);
  printValues("outputs", results, out);
  printOps(model, out);
  printParameters(imported, roles, out);
  printOthers(imported, roles, out);
  printBlocks(imported.parameters, out);
  out << "remarks\n";
  for (const std::string &sentence : imported.notes)
    out << "  " << sentence << '\n';
  printRemarks(imported.remarks, out);
  for (const std::string &name : model.tracedSeparately)
    out << "  cannot train '" << name
        << "': it is read under torch.no_grad() or torch.autocast(), and nothing says which\n";
  for (const LostParameter &lost : model.lost)
    out << "  cannot train '" << lost.name << "': it " << lost.why << '\n';
}

} // namespace fsdpc
