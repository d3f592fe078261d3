#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/traced_graph.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace fsdpc {

namespace {

/// Replaces a Split of biases that the exporter concatenated into one constant.
class ConcatenatedBiases {
public:
  explicit ConcatenatedBiases(const Repair &repair)
      : repair(repair), index(repair.model.graph()), signature(exportSignature(index.graph)),
        traced(index.graph, signature), edit(repair.model.graph()) {
    for (const std::string &name : missingParameters(index.graph, signature))
      if (signature.isParameter.contains(name))
        missing.insert(name);
  }

  llvm::Error run() {
    if (!traced.known())
      return llvm::Error::success();
    for (int i = 0; i < index.graph.node_size(); ++i)
      if (const onnx::TensorProto *joined = joinedBiases(i))
        if (llvm::Error error = takeApart(i, *joined))
          return error;
    edit.apply();
    return llvm::Error::success();
  }

private:
  /// The operand of a Split without a statement: a vector made from several parameters. Null for others.
  const onnx::TensorProto *joinedBiases(int position) const {
    const onnx::NodeProto &node = index.graph.node(position);
    if (node.op_type() != "Split" || traced.statementOf(position) >= 0 || node.input_size() == 0)
      return nullptr;
    const onnx::TensorProto *tensor = index.initializer(node.input(0));
    const bool isVector = tensor && tensor->dims_size() == 1 && tensor->data_type() == onnx::TensorProto::FLOAT;
    auto folded = isVector ? signature.foldedFrom.find(tensor->name()) : signature.foldedFrom.end();
    if (folded == signature.foldedFrom.end() || tracedOperation(tensor->name()) != "cat")
      return nullptr;
    return llvm::count_if(folded->second, [&](const std::string &one) { return signature.isParameter.contains(one); }) >
                   1
               ? tensor
               : nullptr;
  }

  /// Requires every read of every slice to be a layer's bias. Otherwise nothing changes, and the parameters stay lost.
  llvm::Error takeApart(int position, const onnx::TensorProto &joined) {
    const onnx::NodeProto &node = index.graph.node(position);
    const int64_t elements = elementsOf(joined), parts = node.output_size();
    if (parts == 0 || elements % parts != 0 || isAbsent(repair.model, joined) || !isEven(node, elements / parts))
      return llvm::Error::success();
    llvm::StringSet<> mayMean = missing;
    for (const std::string &source : signature.foldedFrom.find(joined.name())->second)
      mayMean.insert(source);
    std::map<std::pair<int, int>, std::string> meant;
    for (const std::string &output : node.output())
      for (const Read &read : index.consumers(output)) {
        const std::string name = biasMeant(read, mayMean);
        if (name.empty())
          return llvm::Error::success();
        meant[{read.node, read.input}] = name;
      }
    llvm::Expected<std::vector<uint8_t>> bytes = readTensor(repair.model, joined);
    if (!bytes)
      return bytes.takeError();
    const int64_t partBytes = static_cast<int64_t>(bytes->size()) / parts;
    for (int part = 0; part < node.output_size(); ++part)
      for (const Read &read : index.consumers(node.output(part)))
        give(read, meant[{read.node, read.input}], joined,
             llvm::ArrayRef(*bytes).slice(static_cast<size_t>(part * partBytes), static_cast<size_t>(partBytes)));
    edit.removeNode(position);
    return llvm::Error::success();
  }

  /// True if all slices have that size. Sizes are an initializer, or omitted if they are even.
  bool isEven(const onnx::NodeProto &node, int64_t size) const {
    if (node.input_size() < 2 || node.input(1).empty())
      return true;
    const onnx::TensorProto *sizes = index.initializer(node.input(1));
    if (!sizes || sizes->data_type() != onnx::TensorProto::INT64 || isAbsent(repair.model, *sizes))
      return false;
    llvm::Expected<Dense> values = readDense(repair.model, *sizes);
    if (!values) {
      llvm::consumeError(values.takeError());
      return false;
    }
    for (int64_t i = 0; i < elementsOf(*sizes); ++i)
      if (values->at(i) != static_cast<double>(size))
        return false;
    return true;
  }

  /// The bias of the layer whose weight the reader's statement quotes; "" if it is none of `mayMean`.
  std::string biasMeant(const Read &read, const llvm::StringSet<> &mayMean) const {
    const int position = traced.statementOf(read.node);
    if (position < 0 || index.graph.node(read.node).op_type() != "Add")
      return "";
    for (const std::string &name : traced.statements[position].parameters)
      if (leafOf(name) == "weight")
        if (std::string bias = (moduleOf(name) + ".bias").str(); mayMean.contains(bias))
          return bias;
    return "";
  }

  void give(const Read &read, const std::string &name, const onnx::TensorProto &joined,
            llvm::ArrayRef<uint8_t> values) {
    std::string &value = valueOf[name];
    if (value.empty()) {
      const std::string note = "was stored as a part of '" + joined.name() + "'";
      value = edit.addParameter(name, joined.data_type(), {static_cast<int64_t>(values.size() / sizeof(float))}, values,
                                note);
      repair.remarks.push_back("'" + name + "' " + note);
    }
    edit.setInput(read.node, read.input, value);
  }

  const Repair &repair;
  GraphIndex index;
  ExportSignature signature;
  TracedGraph traced;
  GraphEdit edit;
  llvm::StringSet<> missing;
  std::map<std::string, std::string> valueOf; ///< the value to read of each parameter made
};

} // namespace

llvm::Error restoreConcatenated(const Repair &repair) { return ConcatenatedBiases(repair).run(); }

} // namespace fsdpc
