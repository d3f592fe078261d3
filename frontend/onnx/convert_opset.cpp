#include "frontend/onnx/convert_opset.h"

#include "frontend/onnx/control_flow.h"
#include "onnx/version_converter/convert.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

namespace {

// Converters read only small constants: axes, scales, shapes.
constexpr int64_t largestSeen = 1024;

/// The model without the values of large tensors, which the converter does not need.
onnx::ModelProto shallowCopy(OnnxModel &model) {
  google::protobuf::RepeatedPtrField<onnx::TensorProto> weights;
  model.graph().mutable_initializer()->Swap(&weights);
  onnx::ModelProto copy = model.proto;
  model.graph().mutable_initializer()->Swap(&weights);
  for (const onnx::TensorProto &tensor : model.graph().initializer()) {
    onnx::TensorProto *light = copy.mutable_graph()->add_initializer();
    if (elementsOf(tensor) <= largestSeen && tensor.data_location() != onnx::TensorProto::EXTERNAL) {
      *light = tensor;
      continue;
    }
    light->set_name(tensor.name());
    light->set_data_type(tensor.data_type());
    *light->mutable_dims() = tensor.dims();
  }
  return copy;
}

/// Replaces the tensors that went through the converter by the file's own.
void restoreWeights(OnnxModel &model, onnx::ModelProto &converted) {
  llvm::StringMap<onnx::TensorProto *> originals;
  for (onnx::TensorProto &tensor : *model.graph().mutable_initializer())
    originals[tensor.name()] = &tensor;
  for (onnx::TensorProto &tensor : *converted.mutable_graph()->mutable_initializer())
    if (onnx::TensorProto *original = originals.lookup(tensor.name()))
      tensor.Swap(original);
}

/// The converter does not change Hardmax, although it works along one axis from opset 13 on and over all axes from
/// `axis` on before that.
llvm::Error refuseHardmax(const OnnxModel &model) {
  for (const onnx::NodeProto &node : model.proto.graph().node())
    if (node.op_type() == "Hardmax" && node.domain().empty())
      return llvm::createStringError(model.path + ": " + node.name() +
                                     ": Hardmax before opset 13 is not supported; export again with a newer opset");
  return llvm::Error::success();
}

void addText(onnx::NodeProto &node, const char *name, const char *value) {
  onnx::AttributeProto *attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s(value);
}

/// Upsample and Resize before opset 11 divide coordinates by the scale and round down. The converter does not set the
/// attributes for that, and the defaults of Resize differ.
void keepCoordinates(onnx::GraphProto &model) {
  std::vector<onnx::GraphProto *> graphs = {&model};
  while (!graphs.empty()) {
    onnx::GraphProto *graph = graphs.back();
    graphs.pop_back();
    for (onnx::NodeProto &node : *graph->mutable_node()) {
      for (onnx::AttributeProto &attribute : *node.mutable_attribute())
        if (attribute.has_g())
          graphs.push_back(attribute.mutable_g());
      if (node.op_type() != "Resize" || attributeOf(node, "coordinate_transformation_mode"))
        continue;
      addText(node, "coordinate_transformation_mode", "asymmetric");
      addText(node, "nearest_mode", "floor");
    }
  }
}

} // namespace

llvm::Error convertOpset(OnnxModel &model) {
  int64_t opset = model.opset("");
  if (opset >= translatedOpset)
    return llvm::Error::success();
  if (hasControlFlow(model))
    return llvm::createStringError(model.path + ": uses opset " + llvm::Twine(opset) +
                                   " and has If, Loop or Scan nodes, which are read from opset " +
                                   llvm::Twine(translatedOpset) + " on; export again with a newer opset");
  if (llvm::Error error = refuseHardmax(model))
    return error;
  try {
    onnx::ModelProto converted =
        onnx::version_conversion::ConvertVersion(shallowCopy(model), static_cast<int>(translatedOpset));
    restoreWeights(model, converted);
    if (opset < 11)
      keepCoordinates(*converted.mutable_graph());
    model.proto.Swap(&converted);
  } catch (const std::exception &fault) {
    return llvm::createStringError(
        model.path + ": cannot bring opset " + llvm::Twine(opset) + " to " + llvm::Twine(translatedOpset) + ": " +
        llvm::StringRef(fault.what()).split('\n').first + "; export again with a newer opset");
  }
  return llvm::Error::success();
}

} // namespace fsdpc
