#include "frontend/onnx/inputs.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include <set>

namespace fsdpc {

namespace {

class DimBinder {
public:
  DimBinder(const OnnxModel &model, const ImportOptions &options, llvm::ArrayRef<const onnx::ValueInfoProto *> values)
      : model(model), options(options), values(values) {}

  llvm::Expected<std::vector<GraphInput>> bind() {
    collectSymbols();
    if (llvm::Error error = checkNames())
      return error;
    std::vector<GraphInput> inputs;
    for (const onnx::ValueInfoProto *value : values) {
      llvm::Expected<GraphInput> input = bindOne(*value);
      if (!input)
        return input.takeError();
      inputs.push_back(std::move(*input));
    }
    if (unbound.empty())
      return inputs;
    std::vector<std::string> hints;
    for (const std::string &name : unbound)
      hints.push_back("--dim '" + name + "=N'");
    return modelError("these dims have no value: " + llvm::join(unbound, ", ") + "; give them with " +
                      llvm::join(hints, " "));
  }

private:
  llvm::Error modelError(const llvm::Twine &why) const { return llvm::createStringError(model.path + ": " + why); }

  /// The symbol of a dim; "" where it has a size.
  static std::string symbolOf(const onnx::ValueInfoProto &value, int axis) {
    return value.type().tensor_type().shape().dim(axis).has_dim_value() ? "" : dimText(value, axis);
  }

  void collectSymbols() {
    for (const onnx::ValueInfoProto *value : values)
      for (int axis = 0; axis < value->type().tensor_type().shape().dim_size(); ++axis)
        if (std::string symbol = symbolOf(*value, axis); !symbol.empty())
          (axis == 0 ? leading : inner).insert(symbol);
  }

  llvm::Error checkNames() const {
    for (const auto &[name, value] : options.dims) {
      if (!leading.count(name) && !inner.count(name)) {
        std::set<std::string> known(leading);
        known.insert(inner.begin(), inner.end());
        return modelError("no input has a dim '" + name + "'" +
                          (known.empty() ? ": all sizes are fixed" : "; there are " + llvm::join(known, ", ")));
      }
      if (value < 1)
        return modelError("dim '" + name + "' is " + llvm::Twine(value) + "; sizes are positive");
    }
    return llvm::Error::success();
  }

  llvm::Expected<GraphInput> bindOne(const onnx::ValueInfoProto &value) {
    if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape())
      return modelError("input '" + value.name() + "' is no tensor of known rank");
    std::optional<DType> dtype = dtypeOf(value.type().tensor_type().elem_type());
    if (!dtype)
      return modelError("input '" + value.name() + "' has elements of " +
                        typeText(value.type().tensor_type().elem_type()) + ", which are not supported");
    if (value.type().tensor_type().shape().dim_size() == 0)
      return modelError("input '" + value.name() +
                        "' is a scalar, which no data set can feed: dim 0 of an input is the "
                        "batch. The TorchScript exporter makes such inputs of Python numbers: export a module whose "
                        "forward takes tensors only, give the inputs as a tuple instead of a dict, or use dynamo=True");
    Shape shape;
    for (int axis = 0; axis < value.type().tensor_type().shape().dim_size(); ++axis) {
      llvm::Expected<int64_t> dim = axis == 0 ? batchDim(value) : innerDim(value, axis);
      if (!dim)
        return dim.takeError();
      shape.push_back(*dim);
    }
    if (!checkedBytes(*dtype, shape))
      return modelError("input '" + value.name() + "' is too large");
    return GraphInput{value.name(), Type(*dtype, shape)};
  }

  llvm::Expected<int64_t> batchDim(const onnx::ValueInfoProto &value) {
    std::string symbol = symbolOf(value, 0);
    if (inner.count(symbol))
      return innerDim(value, 0);
    int64_t size = options.microBatchSize;
    if (auto given = options.dims.find(symbol); given != options.dims.end() && given->second != size)
      return modelError("--dim " + symbol + "=" + llvm::Twine(given->second) +
                        " is the batch, which --micro_batch_size sets to " + llvm::Twine(size));
    const auto &dim = value.type().tensor_type().shape().dim(0);
    if (symbol.empty() && dim.dim_value() != size)
      return modelError("input '" + value.name() + "' has a fixed batch of " + llvm::Twine(dim.dim_value()) +
                        ": use --micro_batch_size " + llvm::Twine(dim.dim_value()));
    return size;
  }

  llvm::Expected<int64_t> innerDim(const onnx::ValueInfoProto &value, int axis) {
    std::string symbol = symbolOf(value, axis);
    int64_t size = value.type().tensor_type().shape().dim(axis).dim_value();
    if (symbol.empty() && size < 1)
      return modelError("input '" + value.name() + "' has size " + llvm::Twine(size) + " at dim " + llvm::Twine(axis));
    if (symbol.empty())
      return size;
    auto given = options.dims.find(symbol);
    if (given != options.dims.end())
      return given->second;
    unbound.insert(symbol);
    return 1;
  }

  const OnnxModel &model;
  const ImportOptions &options;
  llvm::ArrayRef<const onnx::ValueInfoProto *> values;
  std::set<std::string> leading, inner, unbound; ///< symbols at dim 0, elsewhere, without a value
};

} // namespace

std::vector<const onnx::ValueInfoProto *> dataInputs(const onnx::GraphProto &graph) {
  llvm::StringSet<> initializers;
  for (const onnx::TensorProto &tensor : graph.initializer())
    initializers.insert(tensor.name());
  std::vector<const onnx::ValueInfoProto *> inputs;
  for (const onnx::ValueInfoProto &value : graph.input())
    if (!initializers.contains(value.name()))
      inputs.push_back(&value);
  return inputs;
}

std::string dimText(const onnx::ValueInfoProto &value, int axis) {
  const auto &dim = value.type().tensor_type().shape().dim(axis);
  if (dim.has_dim_value())
    return std::to_string(dim.dim_value());
  return dim.dim_param().empty() ? value.name() + "[" + std::to_string(axis) + "]" : dim.dim_param();
}

llvm::Expected<std::vector<GraphInput>> bindInputs(const OnnxModel &model, const ImportOptions &options) {
  std::vector<const onnx::ValueInfoProto *> values = dataInputs(model.graph());
  if (values.empty())
    return llvm::createStringError(model.path + ": the graph has no inputs");
  return DimBinder(model, options, values).bind();
}

} // namespace fsdpc
