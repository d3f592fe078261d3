#include "frontend/onnx/inspect.h"

#include "frontend/onnx/classify.h"
#include "frontend/onnx/inputs.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/translate/table.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include <set>

namespace fsdpc {

namespace {

constexpr size_t lineWidth = 100;

/// A table: every column as wide as its longest cell, two spaces between. A first cell that makes its line too long has
/// a line of its own.
class Table {
public:
  void row(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
  void print(llvm::raw_ostream &out) const {
    std::vector<size_t> widths;
    for (const auto &cells : rows) {
      widths.resize(std::max(widths.size(), cells.size()));
      for (size_t i = 1; i < cells.size(); ++i)
        widths[i] = std::max(widths[i], cells[i].size());
    }
    size_t others = 0;
    for (size_t width : widths)
      others += width + 2;
    const size_t most = lineWidth > others + 20 ? lineWidth - others : 20;
    for (const auto &cells : rows)
      if (cells[0].size() <= most)
        widths[0] = std::max(widths[0], cells[0].size());
    for (const auto &cells : rows)
      printRow(cells, widths, out);
  }

private:
  static void printRow(llvm::ArrayRef<std::string> cells, llvm::ArrayRef<size_t> widths, llvm::raw_ostream &out) {
    std::string line = "  " + cells[0];
    if (cells[0].size() > widths[0]) {
      out << line << '\n';
      line = "  ";
    }
    size_t column = 2;
    for (size_t i = 1; i < cells.size(); ++i) {
      column += widths[i - 1] + 2;
      line.resize(std::max(line.size(), column), ' ');
      line += cells[i];
    }
    out << llvm::StringRef(line).rtrim() << '\n';
  }

  std::vector<std::vector<std::string>> rows;
};

/// Breaks the sentence at spaces.
void printSentence(llvm::StringRef text, llvm::raw_ostream &out) {
  size_t column = 0;
  for (llvm::StringRef word : llvm::split(text, ' ')) {
    const bool isFirst = column == 0;
    const bool breaks = !isFirst && column + 1 + word.size() > lineWidth;
    out << (isFirst ? "  " : breaks ? "\n    " : " ") << word;
    column = (isFirst ? 2 : breaks ? 4 : column + 1) + word.size();
  }
  out << '\n';
}

/// The text with * for the numbers of blocks: h.*.attn of h.3.attn.
std::string patternOf(llvm::StringRef text) {
  std::string pattern;
  for (size_t i = 0; i < text.size();) {
    const llvm::StringRef digits = text.drop_front(i).take_while(llvm::isDigit);
    const char before = i == 0 ? '.' : text[i - 1],
               after = i + digits.size() < text.size() ? text[i + digits.size()] : '.';
    const bool isBlock = !digits.empty() && before == '.' && after == '.';
    pattern += isBlock ? "*" : digits.empty() ? text.substr(i, 1).str() : digits.str();
    i += std::max<size_t>(digits.size(), 1);
  }
  return pattern;
}

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

/// One line for the parameters of all layers that differ in the layer's number only.
struct ParameterRow {
  llvm::StringRef first;
  std::vector<std::string> facts; ///< type, trained, starts
  int64_t times = 0;
};

void printParameters(const ImportedModel &imported, llvm::raw_ostream &out) {
  int64_t elements = 0, count = 0;
  std::vector<ParameterRow> rows;
  std::map<std::vector<std::string>, size_t> rowOf;
  for (const Parameter &parameter : imported.parameters) {
    if (parameter.isBuffer)
      continue;
    elements += parameter.type.elements();
    ++count;
    std::vector<std::string> facts = {toString(parameter.type), parameter.trainable ? "yes" : "no",
                                      startText(parameter)};
    std::vector<std::string> key = facts;
    key.push_back(patternOf(parameter.name));
    auto [found, isNew] = rowOf.try_emplace(std::move(key), rows.size());
    if (isNew)
      rows.push_back({parameter.name, std::move(facts)});
    ++rows[found->second].times;
  }
  out << llvm::formatv("parameters: {0}, {1} elements\n", count, elements);
  Table table;
  table.row({"name", "", "type", "trained", "starts"});
  for (const ParameterRow &row : rows) {
    std::vector<std::string> cells = {row.times > 1 ? patternOf(row.first) : row.first.str(),
                                      row.times > 1 ? "x" + std::to_string(row.times) : ""};
    llvm::append_range(cells, row.facts);
    table.row(std::move(cells));
  }
  table.print(out);
}

/// One line for what was repaired in the same way in every layer.
void printRepairs(const ImportedModel &imported, llvm::raw_ostream &out) {
  struct Repair {
    const Parameter *first;
    std::string pattern;
    int64_t times = 0;
  };
  std::vector<Repair> repairs;
  llvm::StringMap<size_t> indexOf;
  for (const Parameter &parameter : imported.parameters)
    if (!parameter.recovered.empty()) {
      const std::string pattern = patternOf(parameter.name + " " + parameter.recovered);
      const auto [entry, isNew] = indexOf.try_emplace(pattern, repairs.size());
      if (isNew)
        repairs.push_back({&parameter, pattern});
      ++repairs[entry->second].times;
    }
  if (repairs.empty())
    return;
  out << "repaired\n";
  for (const auto &[first, pattern, times] : repairs)
    printSentence(times == 1 ? first->name + " " + first->recovered : pattern + " (x" + std::to_string(times) + ")",
                  out);
}

void printUnits(llvm::ArrayRef<Unit> units, const ImportedModel &imported, llvm::raw_ostream &out) {
  std::map<std::string, std::pair<int64_t, int64_t>> sizes;
  for (const Parameter &parameter : imported.parameters)
    if (!parameter.isBuffer) {
      ++sizes[parameter.unit].first;
      sizes[parameter.unit].second += parameter.type.elements();
    }
  out << "units: " << units.size() << '\n';
  Table table;
  for (const Unit &unit : units)
    if (const auto &[count, elements] = sizes[unit.name]; count > 0)
      table.row({unit.name, llvm::formatv("{0} parameters", count), llvm::formatv("{0} elements", elements)});
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

/// The remark without the names that it quotes.
std::string withoutNames(llvm::StringRef remark) {
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
    ++counts[withoutNames(remark)];
  for (const std::string &remark : remarks) {
    int64_t &count = counts[withoutNames(remark)];
    if (count == 0)
      continue;
    printSentence(count > 1 ? remark + " (and " + std::to_string(count - 1) + " more like it)" : remark, out);
    count = 0;
  }
}

} // namespace

llvm::StringMap<InitializerRole> initializerRoles(const ImportedModel &imported) {
  const OnnxModel &model = *imported.model;
  GraphIndex index(model.graph());
  std::vector<InitializerRole> all = classifyInitializers(model, index, exportSignature(model.graph()));
  llvm::StringMap<InitializerRole> roles;
  for (int i = 0; i < model.graph().initializer_size(); ++i)
    roles[model.graph().initializer(i).name()] = all[i];
  return roles;
}

static GraphValue graphValue(const onnx::ValueInfoProto &value) {
  const onnx::TypeProto::Tensor &type = value.type().tensor_type();
  const std::optional<DType> dtype = dtypeOf(type.elem_type());
  GraphValue result{value.name(), dtype && isFloat(*dtype), {}};
  for (int i = 0; i < type.shape().dim_size(); ++i)
    result.dims.push_back(dimText(value, i));
  return result;
}

std::vector<GraphValue> inputsOf(const ImportedModel &imported) {
  std::vector<GraphValue> values;
  for (const onnx::ValueInfoProto *value : dataInputs(imported.model->graph()))
    values.push_back(graphValue(*value));
  return values;
}

std::vector<GraphValue> outputsOf(const ImportedModel &imported) {
  std::vector<GraphValue> values;
  for (const onnx::ValueInfoProto &value : imported.model->graph().output())
    values.push_back(graphValue(value));
  return values;
}

std::vector<UseInGraph> parametersInOrder(const ImportedModel &imported) {
  const onnx::GraphProto &graph = imported.model->graph();
  const std::vector<std::string> scopes = moduleScopes(graph);
  llvm::StringMap<int> position;
  for (int i = 0; i < graph.node_size(); ++i)
    position.try_emplace(graph.node(i).name(), i);
  std::vector<std::pair<int, const Parameter *>> order;
  for (const Parameter &parameter : imported.parameters) {
    int first = graph.node_size();
    for (const ParameterUse &use : parameter.uses)
      if (auto found = position.find(use.node); found != position.end())
        first = std::min(first, found->second);
    if (!parameter.isBuffer && first < graph.node_size())
      order.emplace_back(first, &parameter);
  }
  llvm::stable_sort(order, llvm::less_first());
  std::vector<UseInGraph> uses;
  for (const auto &[node, parameter] : order)
    uses.push_back({parameter, scopes[node]});
  return uses;
}

std::map<std::string, std::string> classesOf(const ImportedModel &imported) {
  return moduleClasses(imported.model->graph());
}

void printInspection(const ImportedModel &imported, llvm::ArrayRef<Unit> units, llvm::raw_ostream &out) {
  const OnnxModel &model = *imported.model;
  out << model.path << '\n';
  out << llvm::formatv("  written by {0} {1}, IR version {2}, opset {3}\n", model.proto.producer_name(),
                       model.proto.producer_version(), model.proto.ir_version(), model.opset(""));
  std::vector<const onnx::ValueInfoProto *> results;
  for (const onnx::ValueInfoProto &value : model.graph().output())
    results.push_back(&value);
  printValues("inputs", dataInputs(model.graph()), out);
  printValues("outputs", results, out);
  printOps(model, out);
  printParameters(imported, out);
  printUnits(units, imported, out);
  printOthers(imported, initializerRoles(imported), out);
  printRepairs(imported, out);
  out << "remarks\n";
  for (const std::string &sentence : imported.notes)
    printSentence(sentence, out);
  printRemarks(imported.remarks, out);
  for (const std::string &name : model.tracedSeparately)
    printSentence("cannot train '" + name +
                      "': it is read under torch.no_grad() or torch.autocast(), and nothing says which",
                  out);
  for (const LostParameter &lost : model.lost)
    printSentence("cannot train '" + lost.name + "': it " + lost.why, out);
}

} // namespace fsdpc
