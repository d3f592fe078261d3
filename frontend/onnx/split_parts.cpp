// Parameters whose slices other modules read as their own. The exporter splits in_proj_bias of a cross-attention by a
// Split without a statement, and merged it with those of the parameters that were equal.
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/traced_graph.h"

#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

class PartSplitter {
public:
  explicit PartSplitter(const Repair &repair)
      : repair(repair), index(repair.model.graph()), signature(exportSignature(index.graph)),
        traced(index.graph, signature), edit(repair.model.graph()) {
    for (const std::string &name : missingParameters(index.graph, signature))
      if (!traced.isMentioned(name) && signature.isParameter.contains(name))
        missing.insert(name);
    for (const onnx::ValueInfoProto &output : index.graph.output())
      graphOutputs.insert(output.name());
  }

  /// Errors: an unreadable weights file.
  llvm::Error run() {
    if (missing.empty() || !traced.known())
      return llvm::Error::success();
    for (int i = 0; i < index.graph.node_size(); ++i)
      if (const onnx::TensorProto *tensor = parameterTakenApart(i))
        splitReaders(i, *tensor);
    if (!unread.empty())
      return llvm::createStringError(unread);
    edit.apply();
    return llvm::Error::success();
  }

private:
  /// The parameter that a node without a statement slices; null if the node does something else.
  const onnx::TensorProto *parameterTakenApart(int position) const {
    const onnx::NodeProto &node = index.graph.node(position);
    bool takesApart = llvm::StringSwitch<bool>(node.op_type()).Cases("Split", "Slice", "Gather", true).Default(false);
    if (!takesApart || traced.statementOf(position) >= 0 || node.input_size() == 0)
      return nullptr;
    const onnx::TensorProto *tensor = index.initializer(node.input(0));
    return tensor && signature.isParameter.contains(tensor->name()) ? tensor : nullptr;
  }

  void splitReaders(int position, const onnx::TensorProto &tensor) {
    std::map<std::string, std::vector<Read>> readersOf;
    bool isKept = false;
    for (const std::string &output : index.graph.node(position).output()) {
      isKept |= graphOutputs.contains(output);
      for (const Read &read : index.consumers(output)) {
        std::string name = parameterMeant(read, tensor);
        isKept |= name.empty();
        if (!name.empty())
          readersOf[name].push_back(read);
      }
    }
    for (const auto &[name, reads] : readersOf)
      giveParts(position, tensor, name, reads);
    if (!isKept && !readersOf.empty())
      edit.removeNode(position);
  }

  /// The parameter of the same name in the reader's own module, if the file lacks it and the statement quotes a lost
  /// value, which was its slice. "" if the reader refers to the sliced parameter itself.
  std::string parameterMeant(const Read &read, const onnx::TensorProto &tensor) {
    llvm::StringRef scope = index.scopes[read.node], parameter = tensor.name();
    int statement = traced.statementOf(read.node);
    if (statement < 0 || scope.empty() || isWithin(scope, moduleOf(parameter)))
      return "";
    std::string name = (scope + "." + leafOf(parameter)).str();
    bool quotesLost =
        llvm::any_of(traced.statements[statement].arguments, [&](llvm::StringRef one) { return traced.isLost(one); });
    return quotesLost && missing.contains(name) && !isTie(tensor, name) ? name : "";
  }

  /// Values that are not uniform are equal on purpose, unless the modules are at the same position of repeated blocks.
  bool isTie(const onnx::TensorProto &tensor, llvm::StringRef name) {
    if (repair.options.noTie || withoutDigits(moduleOf(tensor.name())) == withoutDigits(moduleOf(name)))
      return false;
    auto [known, isNew] = uniform.try_emplace(tensor.name(), false);
    if (isNew) {
      llvm::Expected<bool> same = isUniform(repair.model, tensor, /*ifAbsent=*/false);
      known->second = same && *same;
      if (!same)
        unread = llvm::toString(same.takeError());
    }
    return !known->second;
  }

  void giveParts(int position, const onnx::TensorProto &tensor, const std::string &name, llvm::ArrayRef<Read> reads) {
    const onnx::NodeProto &original = index.graph.node(position);
    if (made.insert(name).second) {
      edit.copyInitializer(tensor, name, "was merged with " + tensor.name());
      repair.remarks.push_back("'" + name + "' was merged with '" + tensor.name() +
                               "' because their values were equal; they are separate again");
    }
    onnx::NodeProto &copy = edit.addNodeAfter(position);
    copy = original;
    copy.set_name(original.name() + "_of_" + name);
    copy.set_input(0, name);
    std::map<std::string, std::string> parts;
    for (std::string &output : *copy.mutable_output())
      if (!output.empty())
        output = parts[output] = output + "_of_" + name;
    for (const Read &read : reads)
      edit.setInput(read.node, read.input, parts[index.graph.node(read.node).input(read.input)]);
  }

  const Repair &repair;
  GraphIndex index;
  ExportSignature signature;
  TracedGraph traced;
  llvm::StringSet<> missing, made, graphOutputs;
  llvm::StringMap<bool> uniform;
  std::string unread; ///< why an initializer could not be read; empty: all could
  GraphEdit edit;
};

} // namespace

llvm::Error splitMergedParts(const Repair &repair) {
  return repair.options.keepShared ? llvm::Error::success() : PartSplitter(repair).run();
}

} // namespace fsdpc
