#include "frontend/onnx/complete.h"

#include "frontend/onnx/traced_graph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

constexpr llvm::StringRef call = ".apply(";

/// The last name of a dotted one at the end of the text: "    x = module.RoundedSum" -> "RoundedSum".
llvm::StringRef lastName(llvm::StringRef text) {
  size_t begin = text.size();
  while (begin > 0 && (llvm::isAlnum(text[begin - 1]) || text[begin - 1] == '_'))
    --begin;
  return text.drop_front(begin);
}

/// Of a stack trace, outermost frame first: the class whose `apply` called the `forward` of the next frame; "" if there
/// is none. Calls of other things than a class are no torch.autograd.Function.
llvm::StringRef appliedFunction(llvm::StringRef trace) {
  for (size_t at = trace.find(call); at != llvm::StringRef::npos; at = trace.find(call, at + call.size())) {
    const llvm::StringRef name = lastName(trace.take_front(at));
    const llvm::StringRef nextFrame = trace.drop_front(at).split('\n').second.split('\n').first;
    if (!name.empty() && llvm::isUpper(name.front()) && nextFrame.ends_with(", in forward"))
      return name;
  }
  return {};
}

/// Where the author stopped gradients by detach(): an optimized export drops it, others keep an Identity.
class Detached {
public:
  explicit Detached(const onnx::GraphProto &graph)
      : graph(graph), signature(exportSignature(graph)), traced(graph, signature) {}

  std::vector<LostParameter> find() {
    const bool isAnywhere = llvm::any_of(traced.statements, [](const TracedStatement &statement) {
      return isDetach(statement) || llvm::any_of(statement.arguments, isDetached);
    });
    if (!isAnywhere)
      return {};
    for (const onnx::TensorProto &tensor : graph.initializer())
      if (signature.isParameter.contains(parameterOf(signature, tensor)))
        trained.insert(tensor.name());
    for (int i = 0; i < graph.node_size(); ++i)
      visit(i);
    return std::move(lost);
  }

private:
  static bool isDetach(const TracedStatement &statement) { return operationOfTarget(statement.target) == "detach"; }
  static bool isDetached(llvm::StringRef argument) { return withoutNumber(argument) == "detach"; }

  /// Nodes are sorted: what an input depends on is known.
  void visit(int position) {
    const onnx::NodeProto &node = graph.node(position);
    if (const int statement = traced.statementOf(position); statement >= 0)
      check(node, traced.statements[statement]);
    if (llvm::any_of(node.input(), [&](const std::string &input) { return trained.contains(input); }))
      for (const std::string &output : node.output())
        trained.insert(output);
  }

  /// Does the node read a detached value that gradients would flow to? An input that the statement quotes is another.
  void check(const onnx::NodeProto &node, const TracedStatement &statement) {
    const auto *detached = llvm::find_if(llvm::ArrayRef(statement.arguments),
                                         [&](llvm::StringRef one) { return isDetached(one) && traced.isLost(one); });
    const bool isLost = detached != llvm::ArrayRef(statement.arguments).end();
    if (!isLost && !isDetach(statement))
      return;
    for (const std::string &input : node.input())
      if (trained.contains(input) && (!isLost || !llvm::is_contained(statement.arguments, llvm::StringRef(input)))) {
        if (seen.insert(isLost ? *detached : statement.name).second)
          lost.push_back({nameOf(node).str(), "reads what the model detaches, and in the file gradients flow there",
                          /*isFunction=*/true});
        return;
      }
  }

  const onnx::GraphProto &graph;
  ExportSignature signature;
  TracedGraph traced;
  llvm::StringSet<> trained, seen;
  std::vector<LostParameter> lost;
};

} // namespace

std::vector<LostParameter> findLostDerivatives(const onnx::GraphProto &graph) {
  std::vector<LostParameter> lost;
  llvm::StringSet<> seen;
  for (const onnx::NodeProto &node : graph.node())
    if (const llvm::StringRef name = appliedFunction(metadataOf(node, sourceKey));
        !name.empty() && seen.insert(name).second)
      lost.push_back({name.str(), "is a torch.autograd.Function with a derivative of its own, which is not in the file",
                      /*isFunction=*/true});
  llvm::append_range(lost, Detached(graph).find());
  return lost;
}

} // namespace fsdpc
