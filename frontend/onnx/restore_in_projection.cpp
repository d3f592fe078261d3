// Restores in_proj_weight and in_proj_bias of torch.nn.MultiheadAttention from the slices that the exporter stored.
#include "frontend/onnx/classify.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/tensor_source.h"

#include <map>
#include <optional>

namespace fsdpc {

namespace {

/// One of the matmuls that make queries, keys and values, in node order.
struct Projection {
  const onnx::TensorProto *weight = nullptr; ///< [in, out], as MatMul reads it
  const onnx::TensorProto *bias = nullptr;   ///< null if it has none
};

/// TorchScript folds the slices of an attention whose keys are not its queries and does not record their origin. They
/// are recognized by their matmuls, which are in the module itself, next to its `out_proj`, and have three times its
/// width in total.
class InProjections {
public:
  InProjections(const Repair &repair, const GraphIndex &index) : repair(repair), index(index) {}

  llvm::Error run() {
    std::map<std::string, std::vector<Projection>> modules;
    for (int i = 0; i < index.graph.node_size(); ++i)
      if (std::optional<Projection> projection = projectionOf(index.graph.node(i));
          projection && index.initializer(join(index.scopes[i], "out_proj.weight")))
        modules[index.scopes[i]].push_back(*projection);
    for (const auto &[module, projections] : modules)
      if (llvm::Error error = restore(module, projections))
        return error;
    edit.apply();
    return llvm::Error::success();
  }

private:
  static std::string join(llvm::StringRef module, llvm::StringRef leaf) {
    return module.empty() ? leaf.str() : (module + "." + leaf).str();
  }

  std::optional<Projection> projectionOf(const onnx::NodeProto &node) const {
    const bool isProduct = node.op_type() == "MatMul" && domainOf(node).empty() && node.output_size() == 1;
    Projection projection;
    if (isProduct && llvm::StringRef(node.name()).starts_with("/"))
      projection.weight = foldedOf(node.input(1), 2);
    if (!projection.weight)
      return std::nullopt;
    for (const Read &next : index.consumers(node.output(0))) {
      const onnx::NodeProto &add = index.graph.node(next.node);
      if (add.op_type() == "Add" && add.input_size() == 2)
        projection.bias = foldedOf(add.input(1 - next.input), 1);
    }
    return projection;
  }

  /// The initializer, if its name is made up by the exporter, it is f32 and exactly one node reads it.
  const onnx::TensorProto *foldedOf(llvm::StringRef value, int rank) const {
    const onnx::TensorProto *tensor = index.initializer(value);
    const bool isFolded = tensor && isExporterName(value) && tensor->dims_size() == rank &&
                          tensor->data_type() == onnx::TensorProto::FLOAT && !isAbsent(repair.model, *tensor) &&
                          index.consumers(value).size() == 1;
    return isFolded ? tensor : nullptr;
  }

  llvm::Error restore(llvm::StringRef module, llvm::ArrayRef<Projection> projections) {
    const int64_t width = index.initializer(join(module, "out_proj.weight"))->dims(0);
    int64_t rows = 0, biasRows = 0;
    bool isSquare = true;
    for (const Projection &projection : projections) {
      rows += projection.weight->dims(1);
      biasRows += projection.bias ? projection.bias->dims(0) : 0;
      isSquare &= projection.weight->dims(0) == width;
    }
    const bool isFull = projections.size() > 1 && rows == 3 * width && (isSquare || projections.size() == 3);
    if (!isFull || !isFree(module))
      return llvm::Error::success();
    if (biasRows == rows)
      if (llvm::Error error = joinBiases(module, projections, rows))
        return error;
    return isSquare ? joinWeights(module, projections, width) : nameWeights(module, projections);
  }

  bool isFree(llvm::StringRef module) const {
    for (llvm::StringRef leaf : {"in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight"})
      if (index.initializer(join(module, leaf)))
        return false;
    return true;
  }

  llvm::Error joinBiases(llvm::StringRef module, llvm::ArrayRef<Projection> projections, int64_t rows) {
    std::vector<uint8_t> all;
    for (const Projection &projection : projections)
      if (llvm::Error error = append(*projection.bias, all))
        return error;
    const std::string name = add(module, "in_proj_bias", *projections.front().bias, {rows}, all);
    int64_t first = 0;
    for (const Projection &projection : projections) {
      const int64_t many = projection.bias->dims(0);
      edit.replaceInitializer(projection.bias->name(), edit.addRows(name, first, many), {});
      first += many;
    }
    return llvm::Error::success();
  }

  llvm::Error joinWeights(llvm::StringRef module, llvm::ArrayRef<Projection> projections, int64_t width) {
    std::vector<uint8_t> all;
    for (const Projection &projection : projections)
      if (llvm::Error error = appendTransposed(*projection.weight, all))
        return error;
    const std::string name = add(module, "in_proj_weight", *projections.front().weight, {3 * width, width}, all);
    int64_t first = 0;
    for (const Projection &projection : projections) {
      const int64_t many = projection.weight->dims(1);
      edit.replaceInitializer(projection.weight->name(), edit.addRows(name, first, many), {1, 0});
      first += many;
    }
    return llvm::Error::success();
  }

  /// If keys or values have another width than the queries, each has its own weight.
  llvm::Error nameWeights(llvm::StringRef module, llvm::ArrayRef<Projection> projections) {
    constexpr llvm::StringRef leaves[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    for (size_t i = 0; i < projections.size(); ++i) {
      const onnx::TensorProto &weight = *projections[i].weight;
      std::vector<uint8_t> all;
      if (llvm::Error error = appendTransposed(weight, all))
        return error;
      const std::string name = add(module, leaves[i], weight, {weight.dims(1), weight.dims(0)}, all);
      edit.replaceInitializer(weight.name(), name, {1, 0});
    }
    return llvm::Error::success();
  }

  std::string add(llvm::StringRef module, llvm::StringRef leaf, const onnx::TensorProto &first,
                  llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<uint8_t> values) {
    repair.remarks.push_back("'" + join(module, leaf) + "' was stored in '" + first.name() +
                             "' and others; it is one parameter again");
    edit.insertBefore(0);
    return edit.addParameter(join(module, leaf), first.data_type(), shape, values, "was stored in " + first.name());
  }

  llvm::Error append(const onnx::TensorProto &tensor, std::vector<uint8_t> &to) const {
    llvm::Expected<std::vector<uint8_t>> bytes = readTensor(repair.model, tensor);
    if (!bytes)
      return bytes.takeError();
    to.insert(to.end(), bytes->begin(), bytes->end());
    return llvm::Error::success();
  }

  llvm::Error appendTransposed(const onnx::TensorProto &tensor, std::vector<uint8_t> &to) const {
    llvm::Expected<TensorSource> source = TensorSource::open(repair.model, tensor);
    if (!source)
      return source.takeError();
    const size_t before = to.size(), bytes = static_cast<size_t>(source->elements() * source->elementBytes());
    to.resize(before + bytes);
    return source->readTransposed(tensor.dims(0), 0, tensor.dims(1), to.data() + before);
  }

  const Repair &repair;
  const GraphIndex &index;
  GraphEdit edit{repair.model.graph()};
};

} // namespace

llvm::Error restoreInProjections(const Repair &repair) {
  GraphIndex index(repair.model.graph());
  if (exportSignature(index.graph).known())
    return llvm::Error::success();
  return InProjections(repair, index).run();
}

} // namespace fsdpc
