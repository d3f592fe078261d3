#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/traced_graph.h"

#include "llvm/ADT/DenseSet.h"
#include <array>
#include <bit>
#include <limits>

namespace fsdpc {

namespace {

constexpr llvm::StringRef attentionOperation = "scaled_dot_product_attention";

/// True for a single element with the lowest f32 value.
llvm::Expected<bool> isLeastFloat(const OnnxModel &model, const onnx::TensorProto &tensor) {
  if (tensor.data_type() != onnx::TensorProto::FLOAT || elementsOf(tensor) != 1 || isAbsent(model, tensor))
    return false;
  llvm::Expected<Dense> number = readDense(model, tensor);
  if (!number)
    return number.takeError();
  return number->at(0) == std::numeric_limits<float>::lowest();
}

class BooleanMasks {
public:
  explicit BooleanMasks(const Repair &repair)
      : repair(repair), index(repair.model.graph()), traced(index.graph, exportSignature(index.graph)),
        edit(repair.model.graph()) {}

  llvm::Error run() {
    findGuarded();
    for (int i = 0; i < index.graph.node_size(); ++i) {
      const onnx::NodeProto &node = index.graph.node(i);
      if (node.op_type() != "Where" || node.input_size() != 3 || !guarded.contains(traced.statementOf(i)))
        continue;
      const onnx::TensorProto *fill = constantOf(node.input(2));
      llvm::Expected<bool> isLeast = fill ? isLeastFloat(repair.model, *fill) : llvm::Expected<bool>(false);
      if (!isLeast)
        return isLeast.takeError();
      if (*isLeast)
        edit.setInput(i, 2, minusInfinity());
    }
    edit.apply();
    return llvm::Error::success();
  }

private:
  /// Finds attention statements with a node that checks for rows that see no key.
  void findGuarded() {
    for (int i = 0; i < index.graph.node_size(); ++i)
      if (const int statement = traced.statementOf(i);
          statement >= 0 && index.graph.node(i).op_type() == "IsNaN" &&
          operationOfTarget(traced.statements[statement].target) == attentionOperation)
        guarded.insert(statement);
  }

  /// The tensor of an initializer or of a Constant node, which an unoptimized export keeps. Null for others.
  const onnx::TensorProto *constantOf(llvm::StringRef value) const {
    const onnx::NodeProto *producer = index.producer(value);
    if (!producer)
      return index.initializer(value);
    const bool isConstant = domainOf(*producer).empty() && producer->op_type() == "Constant";
    const onnx::AttributeProto *attribute = isConstant ? attributeOf(*producer, "value") : nullptr;
    return attribute && attribute->has_t() ? &attribute->t() : nullptr;
  }

  llvm::StringRef minusInfinity() {
    if (made.empty()) {
      for (made = "minus_infinity"; index.initializer(made) || index.producer(made);)
        made += "_";
      const auto bytes = std::bit_cast<std::array<uint8_t, sizeof(float)>>(-std::numeric_limits<float>::infinity());
      edit.addTensor(made, onnx::TensorProto::FLOAT, {}, bytes, "");
      repair.remarks.emplace_back(
          "a query whose keys a boolean mask hides all is zero, as in PyTorch: the exporter wrote "
          "the least float for what is hidden, with which it would see all keys alike");
    }
    return made;
  }

  const Repair &repair;
  GraphIndex index;
  TracedGraph traced;
  GraphEdit edit;
  llvm::DenseSet<int> guarded;
  std::string made; ///< the name of -infinity, once it is in the graph
};

} // namespace

llvm::Error restoreBooleanMasks(const Repair &repair) { return BooleanMasks(repair).run(); }

} // namespace fsdpc
