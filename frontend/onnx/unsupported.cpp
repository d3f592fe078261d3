#include "frontend/onnx/unsupported.h"

#include "frontend/onnx/control_flow.h"
#include "frontend/onnx/expand_functions.h"
#include "frontend/onnx/subgraphs.h"
#include "frontend/onnx/translate/table.h"
#include "onnx/shape_inference/implementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

namespace {

std::string dimText(const onnx::TensorShapeProto::Dimension &dim) {
  if (dim.has_dim_value())
    return std::to_string(dim.dim_value());
  // libonnx calls dims that it cannot infer unk__0, unk__1, ...
  bool isNamed = !dim.dim_param().empty() && !llvm::StringRef(dim.dim_param()).starts_with("unk__");
  return isNamed ? dim.dim_param() : "?";
}

std::string fullTypeText(const onnx::TypeProto &type) {
  if (!type.has_tensor_type())
    return "not a tensor";
  std::string text = typeText(type.tensor_type().elem_type());
  if (!type.tensor_type().has_shape())
    return text + "[...]";
  std::vector<std::string> dims;
  for (const auto &dim : type.tensor_type().shape().dim())
    dims.push_back(dimText(dim));
  return text + "[" + llvm::join(dims, ",") + "]";
}

std::string fullTypeText(const onnx::TensorProto &tensor) {
  std::vector<std::string> dims;
  for (int64_t dim : tensor.dims())
    dims.push_back(std::to_string(dim));
  return typeText(tensor.data_type()) + "[" + llvm::join(dims, ",") + "]";
}

/// The file's graph with all types that libonnx can infer. Omits the values of weights, since only types matter here.
onnx::ModelProto inferredTypes(const OnnxModel &model) {
  onnx::ModelProto copy = model.proto;
  for (onnx::TensorProto &tensor : *copy.mutable_graph()->mutable_initializer())
    if (elementsOf(tensor) > 1024) {
      auto *value = copy.mutable_graph()->add_value_info();
      value->set_name(tensor.name());
      value->mutable_type()->mutable_tensor_type()->set_elem_type(tensor.data_type());
      for (int64_t dim : tensor.dims())
        value->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(dim);
      tensor.clear_raw_data();
      tensor.clear_float_data();
    }
  try {
    onnx::ShapeInferenceOptions options{/*check_type=*/false, /*error_mode=*/0, /*data_propagation=*/true};
    onnx::shape_inference::InferShapes(copy, onnx::OpSchemaRegistry::Instance(), options);
  } catch (const std::exception &) {
    // Shapes are optional in these messages. Uses the types inferred so far.
  }
  return copy;
}

llvm::StringMap<std::string> typesOfValues(const onnx::ModelProto &model) {
  llvm::StringMap<std::string> types;
  for (const auto *list : {&model.graph().value_info(), &model.graph().input(), &model.graph().output()})
    for (const onnx::ValueInfoProto &value : *list)
      types[value.name()] = fullTypeText(value.type());
  for (const onnx::TensorProto &tensor : model.graph().initializer())
    types[tensor.name()] = fullTypeText(tensor);
  return types;
}

/// Advice on how to export without such an op; "" if there is none.
std::string adviceFor(const onnx::NodeProto &node) {
  llvm::StringRef op = node.op_type(), domain = domainOf(node);
  bool isQuantized = op.contains("Quantize") || op.starts_with("QLinear") || op.contains("NBits") ||
                     op == "MatMulInteger" || op == "ConvInteger";
  if (isQuantized)
    return ": quantized weights do not train; export the float model";
  if (domain == "com.microsoft")
    return ": ONNX Runtime's optimizer fuses into it; use the file that torch.onnx.export wrote, or --optimize O1";
  if (domain == "org.pytorch.aten" || domain.starts_with("aten"))
    return ": torch.onnx.export left it as it is; export with dynamo=True";
  if (domain.starts_with("pkg."))
    return ": a function that the file does not define; export again with dynamo=True, optimize=False";
  return "";
}

} // namespace

std::string unsupportedNodes(const OnnxModel &model, bool mayExpand) {
  std::vector<const onnx::NodeProto *> nodes;
  llvm::StringMap<bool> isFunction;
  for (const onnx::FunctionProto &function : model.proto.functions())
    isFunction[function.domain() + ":" + function.name()] = true;
  forEachNode(model.graph().node(), [&](const onnx::NodeProto &node) {
    bool isKnown = isFunction.count(node.domain() + ":" + node.op_type()) || isControlFlow(node) ||
                   findTranslation(domainOf(node), node.op_type(), model.opset(domainOf(node))) ||
                   (mayExpand && hasFunctionBody(model, node));
    if (!isKnown)
      nodes.push_back(&node);
  });
  if (nodes.empty())
    return "";
  llvm::StringMap<std::string> types = typesOfValues(inferredTypes(model));
  std::string text = "unsupported nodes:";
  for (const onnx::NodeProto *node : nodes) {
    std::vector<std::string> inputs;
    for (const std::string &input : node->input()) {
      auto found = types.find(input);
      inputs.push_back(input.empty() ? "-" : found == types.end() ? "?" : found->second);
    }
    text += "\n  " + describe(model, *node) + ", inputs " + (inputs.empty() ? "none" : llvm::join(inputs, ", ")) +
            adviceFor(*node);
  }
  return text;
}

} // namespace fsdpc
