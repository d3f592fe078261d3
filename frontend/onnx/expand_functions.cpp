#include "frontend/onnx/expand_functions.h"

#include "frontend/onnx/translate/table.h"
#include "onnx/defs/schema.h"
#include "onnx/inliner/inliner.h"
#include "onnx/shape_inference/implementation.h"
#include "llvm/ADT/StringSet.h"
#include <set>

namespace fsdpc {

namespace {

// Ops in a body may have bodies themselves, nested at most this deep.
constexpr int maxRounds = 4;

onnx::inliner::FunctionIdVector expandable(const OnnxModel &model) {
  std::set<std::string> ops;
  int64_t opset = model.opset("");
  for (const onnx::NodeProto &node : model.graph().node())
    if (domainOf(node).empty() && !findTranslation("", node.op_type(), opset) && hasFunctionBody(model, node))
      ops.insert(node.op_type());
  onnx::inliner::FunctionIdVector ids;
  for (const std::string &op : ops)
    ids.emplace_back("", op);
  return ids;
}

/// The inliner looks up types only among the values, where files need not list initializers.
void listInitializerTypes(onnx::GraphProto &graph) {
  llvm::StringSet<> listed;
  for (const auto *values : {&graph.value_info(), &graph.input()})
    for (const onnx::ValueInfoProto &value : *values)
      if (value.has_type())
        listed.insert(value.name());
  for (const onnx::TensorProto &tensor : graph.initializer()) {
    if (!listed.insert(tensor.name()).second)
      continue;
    onnx::ValueInfoProto *value = graph.add_value_info();
    value->set_name(tensor.name());
    onnx::TypeProto::Tensor *type = value->mutable_type()->mutable_tensor_type();
    type->set_elem_type(tensor.data_type());
    for (int64_t dim : tensor.dims())
      type->mutable_shape()->add_dim()->set_dim_value(dim);
  }
}

void expandRound(OnnxModel &model, onnx::inliner::FunctionIdVector ids) {
  // Some bodies depend on the types of their inputs.
  onnx::ShapeInferenceOptions options{/*check_type=*/false, /*error_mode=*/0, /*data_propagation=*/true};
  onnx::shape_inference::InferShapes(model.proto, onnx::OpSchemaRegistry::Instance(), options);
  listInitializerTypes(model.graph());
  auto selected = onnx::inliner::FunctionIdSet::Create(std::move(ids));
  onnx::inliner::InlineSelectedFunctions(model.proto, *selected, nullptr);
}

/// After the expansion a Gather reads them, like embeddings.
void noteAngleTables(OnnxModel &model) {
  for (const onnx::NodeProto &node : model.graph().node())
    if (node.op_type() == "RotaryEmbedding") {
      int first = domainOf(node).empty() ? 1 : 2; // com.microsoft's has the positions before the tables
      for (int input : {first, first + 1})
        if (input < node.input_size())
          model.angleTables.insert(node.input(input));
    }
}

} // namespace

bool hasFunctionBody(const OnnxModel &model, const onnx::NodeProto &node) {
  if (!domainOf(node).empty())
    return false;
  int opset = static_cast<int>(model.opset(""));
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(node.op_type(), opset, "");
  return schema && (schema->HasFunction() || schema->HasContextDependentFunction());
}

llvm::Error expandFunctions(OnnxModel &model) {
  noteAngleTables(model);
  int previous = -1;
  for (int round = 0; round < maxRounds && model.graph().node_size() != previous; ++round) {
    onnx::inliner::FunctionIdVector ids = expandable(model);
    if (ids.empty())
      break;
    previous = model.graph().node_size();
    try {
      expandRound(model, std::move(ids));
    } catch (const std::exception &fault) {
      return llvm::createStringError(model.path + ": cannot expand the ops that ONNX defines by others: " +
                                     llvm::StringRef(fault.what()).split('\n').first);
    }
  }
  return llvm::Error::success();
}

} // namespace fsdpc
