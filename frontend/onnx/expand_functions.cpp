#include "frontend/onnx/expand_functions.h"

#include "frontend/onnx/translate/table.h"
#include "onnx/defs/schema.h"
#include "onnx/inliner/inliner.h"
#include "onnx/shape_inference/implementation.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <set>
#include <stdexcept>

namespace fsdpc {

namespace {

// Ops in a body may have bodies themselves, nested at most this deep.
constexpr int maxRounds = 4;

const onnx::OpSchema *schemaOf(const OnnxModel &model, const onnx::NodeProto &node) {
  return onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(model.opset("")), "");
}

/// The ops to expand.
std::set<std::string> expandable(const OnnxModel &model) {
  std::set<std::string> ops;
  int64_t opset = model.opset("");
  for (const onnx::NodeProto &node : model.graph().node())
    if (domainOf(node).empty() && !findTranslation("", node.op_type(), opset) && hasFunctionBody(model, node))
      ops.insert(node.op_type());
  return ops;
}

/// The domain of functions that are the body of one node each.
constexpr const char *bodyDomain = "fsdpc.body";

/// What the inliner replaces: ops whose bodies are always the same, and the bodies of single nodes.
class ExpandedOps : public onnx::inliner::FunctionIdSet {
public:
  explicit ExpandedOps(const std::set<std::string> &ops) : ops(ops) {}
  bool Contains(const std::string &domain, const std::string &name) const override {
    return domain == bodyDomain || (domain.empty() && ops.count(name) > 0);
  }

private:
  const std::set<std::string> &ops;
};

/// The types of all values are looked up among the listed ones, and files need not list initializers.
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

using TypesByName = llvm::StringMap<const onnx::TypeProto *>;

TypesByName typesOf(const onnx::GraphProto &graph) {
  TypesByName types;
  for (const auto *values : {&graph.value_info(), &graph.input(), &graph.output()})
    for (const onnx::ValueInfoProto &value : *values)
      types.try_emplace(value.name(), &value.type());
  return types;
}

/// Calls a function of this node alone, if its body depends on the types of its inputs. The inliner would infer the
/// shapes of the whole graph for every such node.
void callOwnBody(OnnxModel &model, onnx::NodeProto &node, const TypesByName &types) {
  const onnx::OpSchema *schema = schemaOf(model, node);
  if (schema->HasFunction() || !schema->HasContextDependentFunction())
    return;
  std::vector<onnx::TypeProto> inputTypes;
  for (const std::string &input : node.input()) {
    const onnx::TypeProto *type = types.lookup(input);
    if (!type && !input.empty())
      throw std::runtime_error("the type of " + input + " is unknown");
    inputTypes.push_back(type ? *type : onnx::TypeProto());
  }
  onnx::FunctionProto body;
  const onnx::FunctionBodyBuildContextImpl context(node, inputTypes);
  if (!schema->BuildContextDependentFunction(context, body, static_cast<int>(model.opset(""))))
    return;
  body.set_domain(bodyDomain);
  body.set_name(node.op_type() + "_" + std::to_string(model.proto.functions_size()));
  *body.mutable_opset_import() = model.proto.opset_import();
  node.set_domain(body.domain());
  node.set_op_type(body.name());
  *model.proto.add_functions() = std::move(body);
}

void expandRound(OnnxModel &model, const std::set<std::string> &ops) {
  onnx::ShapeInferenceOptions options{/*check_type=*/false, /*error_mode=*/0, /*data_propagation=*/true};
  onnx::shape_inference::InferShapes(model.proto, onnx::OpSchemaRegistry::Instance(), options);
  listInitializerTypes(model.graph());
  const TypesByName types = typesOf(model.graph());
  for (onnx::NodeProto &node : *model.graph().mutable_node())
    if (domainOf(node).empty() && ops.count(node.op_type()) > 0)
      callOwnBody(model, node, types);
  onnx::inliner::InlineSelectedFunctions(model.proto, ExpandedOps(ops), nullptr);
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
  const onnx::OpSchema *schema = schemaOf(model, node);
  return schema && (schema->HasFunction() || schema->HasContextDependentFunction());
}

llvm::Error expandFunctions(OnnxModel &model) {
  noteAngleTables(model);
  int previous = -1;
  for (int round = 0; round < maxRounds && model.graph().node_size() != previous; ++round) {
    const std::set<std::string> ops = expandable(model);
    if (ops.empty())
      break;
    previous = model.graph().node_size();
    try {
      expandRound(model, ops);
    } catch (const std::exception &fault) {
      return llvm::createStringError(model.path + ": cannot expand the ops that ONNX defines by others: " +
                                     llvm::StringRef(fault.what()).split('\n').first);
    }
  }
  return llvm::Error::success();
}

} // namespace fsdpc
