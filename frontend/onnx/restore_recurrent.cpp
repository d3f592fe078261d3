// Operands of LSTM, GRU and RNN nodes become the parameters of PyTorch's modules again.
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/metadata.h"
#include "frontend/onnx/repair.h"

#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cstring>
#include <map>

namespace fsdpc {

namespace {

/// Block j of ONNX is block order[j] of PyTorch: iofc of ifgo, zrh of rzn (torch.nn.LSTM and GRU; ONNX operator pages).
std::vector<int64_t> gateOrder(llvm::StringRef op) {
  if (op == "LSTM")
    return {0, 3, 1, 2};
  if (op == "GRU")
    return {1, 0, 2};
  if (op == "RNN")
    return {0};
  return {};
}

class RecurrentOperands {
public:
  RecurrentOperands(const Repair &repair, const GraphIndex &index)
      : repair(repair), index(index), signature(exportSignature(index.graph)) {}

  llvm::Error run() {
    countLayers();
    for (int i = 0; i < index.graph.node_size(); ++i) {
      const onnx::NodeProto &node = index.graph.node(i);
      edit.insertBefore(i);
      std::vector<int64_t> order = gateOrder(node.op_type());
      if (order.empty() || !domainOf(node).empty())
        continue;
      for (int input = 1; input <= 3 && input < node.input_size(); ++input)
        if (llvm::Error error = restore(node, input, order))
          return error;
    }
    edit.apply();
    return llvm::Error::success();
  }

private:
  llvm::Error restore(const onnx::NodeProto &node, int input, llvm::ArrayRef<int64_t> order) {
    const onnx::TensorProto *tensor = index.initializer(node.input(input));
    if (!signature.known())
      return tensor ? restoreByScope(*tensor, input, order) : llvm::Error::success();
    auto folded = tensor ? signature.foldedFrom.find(tensor->name()) : signature.foldedFrom.end();
    if (folded == signature.foldedFrom.end() || !done.insert(tensor->name()).second)
      return llvm::Error::success();
    std::vector<std::string> parameters;
    for (const std::string &source : folded->second)
      if (signature.isParameter.contains(source))
        parameters.push_back(source);
    if (parameters.empty())
      return llvm::Error::success();
    const std::vector<std::string> parts = partsOf(parameters, input, tensor->dims_size() > 0 ? tensor->dims(0) : 0);
    const int64_t blocks = static_cast<int64_t>(parts.size() * order.size());
    const bool isFull = !parts.empty() && !isAbsent(repair.model, *tensor) && elementsOf(*tensor) % blocks == 0;
    if (!isFull) {
      for (const std::string &name : parameters)
        repair.model.lost.push_back({name, "was computed, with others, into '" + tensor->name() + "'"});
      return llvm::Error::success();
    }
    return split(*tensor, parts, order);
  }

  /// Numbers the recurrent nodes of each module: TorchScript writes one node per layer, first to last.
  void countLayers() {
    llvm::StringMap<int> layersOf;
    for (int i = 0; i < index.graph.node_size(); ++i) {
      const onnx::NodeProto &node = index.graph.node(i);
      const bool isScoped = llvm::StringRef(node.name()).starts_with("/") && domainOf(node).empty();
      if (isScoped && !gateOrder(node.op_type()).empty())
        layers[i] = layersOf[index.scopes[i]]++;
    }
  }

  /// TorchScript folds the operands and does not record their origin. It follows from their position, and their names
  /// are torch.nn's: LSTM, GRU and RNN nodes have no other source.
  llvm::Error restoreByScope(const onnx::TensorProto &tensor, int input, llvm::ArrayRef<int64_t> order) {
    llvm::ArrayRef<InitializerRead> reads = index.readsOf(tensor.name());
    auto layer = layers.find(reads.front().node);
    const bool isFolded = isExporterName(tensor.name()) && !isAbsent(repair.model, tensor) && layer != layers.end();
    const bool isPlain = llvm::all_of(reads, [&](const InitializerRead &read) {
      return read.input == input && read.permutation.empty() && layers.contains(read.node) &&
             index.node(read).op_type() == index.node(reads.front()).op_type();
    });
    if (!isFolded || !isPlain || !done.insert(tensor.name()).second)
      return llvm::Error::success();
    const int64_t directions = tensor.dims_size() > 0 ? tensor.dims(0) : 0;
    const std::string scope = index.scopes[reads.front().node];
    std::vector<std::string> parts;
    for (int64_t direction = 0; direction < std::min<int64_t>(directions, 2); ++direction)
      for (llvm::StringRef kind : kindsOf(input))
        parts.push_back((scope.empty() ? "" : scope + ".") + kind.str() + "_l" + std::to_string(layer->second) +
                        (direction == 1 ? "_reverse" : ""));
    const bool isFree = llvm::none_of(parts, [&](llvm::StringRef name) { return index.initializer(name); });
    const int64_t blocks = static_cast<int64_t>(parts.size() * order.size());
    const bool isFull = blocks > 0 && directions <= 2 && elementsOf(tensor) % blocks == 0;
    if (!isFree || !isFull)
      return llvm::Error::success();
    edit.insertBefore(index.consumers(tensor.name()).front().node); // a second call reads it through an Identity
    return split(tensor, parts, order);
  }

  static std::vector<llvm::StringRef> kindsOf(int input) {
    if (input == 3)
      return {"bias_ih", "bias_hh"};
    return {input == 1 ? "weight_ih" : "weight_hh"};
  }

  /// The parameters in the order in which the operand holds them; empty if they are not exactly those of the operand.
  static std::vector<std::string> partsOf(llvm::ArrayRef<std::string> parameters, int input, int64_t directions) {
    const std::vector<llvm::StringRef> kinds = kindsOf(input);
    std::vector<std::string> parts;
    for (int64_t direction = 0; direction < directions && direction < 2; ++direction)
      for (llvm::StringRef kind : kinds)
        for (const std::string &name : parameters)
          if (leafOf(name).starts_with(kind) && leafOf(name).ends_with("_reverse") == (direction == 1))
            parts.push_back(name);
    bool isComplete =
        parts.size() == parameters.size() && parts.size() == static_cast<size_t>(directions) * kinds.size();
    return isComplete ? parts : std::vector<std::string>();
  }

  /// Splits [directions, gates * H, ...] or [directions, 2 * gates * H] into parts, each with its gates in PyTorch's
  /// order.
  llvm::Error split(const onnx::TensorProto &tensor, llvm::ArrayRef<std::string> parts, llvm::ArrayRef<int64_t> order) {
    llvm::Expected<std::vector<uint8_t>> bytes = readTensor(repair.model, tensor);
    if (!bytes)
      return bytes.takeError();
    const size_t partBytes = bytes->size() / parts.size(), gateBytes = partBytes / order.size();
    const int64_t gates = static_cast<int64_t>(order.size()),
                  elements = elementsOf(tensor) / static_cast<int64_t>(parts.size());
    Shape shape = {elements};
    if (tensor.dims_size() == 3)
      shape = {tensor.dims(1), tensor.dims(2)};
    std::vector<std::string> values;
    for (size_t part = 0; part < parts.size(); ++part) {
      std::vector<uint8_t> own(partBytes);
      for (size_t gate = 0; gate < order.size(); ++gate)
        std::memcpy(own.data() + static_cast<size_t>(order[gate]) * gateBytes,
                    bytes->data() + part * partBytes + gate * gateBytes, gateBytes);
      std::string value = edit.addParameter(parts[part], tensor.data_type(), shape, own,
                                            "was stored in '" + tensor.name() + "', gates in another order");
      if (gates > 1)
        value = edit.addGather(edit.addReshape(value, {gates, elements / gates}), order, {gates});
      values.push_back(edit.addReshape(value, {elements}));
    }
    std::string all = values.size() > 1 ? edit.addConcat(values, 0) : values.front();
    edit.replaceInitializer(tensor.name(), edit.addReshape(all, shapeOf(tensor)), {});
    repair.remarks.push_back("'" + parts.front() + "' was stored in '" + tensor.name() +
                             "' with gates in ONNX's order; " + std::to_string(parts.size()) +
                             " parameters are out of it again");
    return llvm::Error::success();
  }

  const Repair &repair;
  const GraphIndex &index;
  ExportSignature signature;
  llvm::StringSet<> done;
  std::map<int, int> layers; ///< by node: its number in the module
  GraphEdit edit{repair.model.graph()};
};

} // namespace

llvm::Error restoreRecurrent(const Repair &repair) {
  GraphIndex index(repair.model.graph());
  return RecurrentOperands(repair, index).run();
}

} // namespace fsdpc
