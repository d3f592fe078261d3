#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/traced_graph.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

bool isDetached(llvm::StringRef argument) { return withoutNumber(argument) == "detach"; }

bool isDetach(const TracedStatement &statement) { return operationOfTarget(statement.target) == "detach"; }

class Stops {
public:
  explicit Stops(const Repair &repair)
      : repair(repair), graph(repair.model.graph()), index(graph), signature(exportSignature(graph)),
        traced(graph, signature), edit(graph) {}

  void run() {
    if (!isAnywhere())
      return;
    for (const onnx::TensorProto &tensor : graph.initializer())
      if (signature.isParameter.contains(parameterOf(signature, tensor)))
        trained.insert(tensor.name());
    // Nodes are sorted: what an input depends on is known.
    for (int i = 0; i < graph.node_size(); ++i) {
      if (const TracedStatement *statement = statementOf(i)) {
        if (readsMerged(i, *statement))
          refuse(i);
        else if (isDetach(*statement))
          markKept(i);
        else
          stopDropped(i, *statement);
      }
      if (llvm::any_of(graph.node(i).input(), [&](const std::string &input) { return trained.contains(input); }) &&
          metadataOf(graph.node(i), stopGradientKey).empty())
        for (const std::string &output : graph.node(i).output())
          trained.insert(output);
    }
    edit.apply();
    if (many > 0)
      repair.remarks.push_back("gradients stop at " + std::to_string(many) + " inputs that the model detaches");
  }

private:
  bool isAnywhere() const {
    return llvm::any_of(traced.statements, [](const TracedStatement &statement) {
      return isDetach(statement) || llvm::any_of(statement.arguments, isDetached);
    });
  }

  const TracedStatement *statementOf(int node) const {
    const int position = traced.statementOf(node);
    return position < 0 ? nullptr : &traced.statements[position];
  }

  /// Without their detach, q - z and q.detach() - z are equal, and the exporter keeps one of them: does the node read,
  /// in place of a lost value, what another statement of the same operation made?
  bool readsMerged(int position, const TracedStatement &statement) const {
    const auto &inputs = graph.node(position).input();
    return llvm::any_of(inputs, [&](const std::string &input) {
      const int producer = index.producerPosition(input);
      const TracedStatement *made = producer < 0 ? nullptr : statementOf(producer);
      if (!made || made == &statement || !trained.contains(input))
        return false;
      auto isOther = [&](llvm::StringRef argument) {
        return traced.isLost(argument) && !isDetached(argument) && withoutNumber(argument) == withoutNumber(made->name);
      };
      return llvm::any_of(statement.arguments, isOther) &&
             llvm::count(inputs, input) > llvm::count(statement.arguments, made->name);
    });
  }

  void markKept(int position) {
    onnx::NodeProto &node = *graph.mutable_node(position);
    if (node.input_size() == 0 || !trained.contains(node.input(0)))
      return;
    if (node.op_type() != "Identity")
      return refuse(position);
    markStopsGradient(node);
    ++many;
  }

  /// The node reads in place of the dropped value what was detached, which its statement does not quote.
  void stopDropped(int position, const TracedStatement &statement) {
    llvm::SmallVector<int, 2> quotes;
    bool quotesOtherLost = false;
    for (const auto &[i, argument] : llvm::enumerate(statement.arguments)) {
      if (!traced.isLost(argument))
        continue;
      if (isDetached(argument))
        quotes.push_back(static_cast<int>(i));
      else
        quotesOtherLost = true;
    }
    const onnx::NodeProto &node = graph.node(position);
    if (quotes.empty())
      return;
    llvm::SmallVector<int, 2> unquoted;
    for (int i = 0; i < node.input_size(); ++i)
      if (trained.contains(node.input(i)) && !isQuoted(position, statement, node.input(i)))
        unquoted.push_back(i);
    const bool isInOrder = node.input_size() == static_cast<int>(statement.arguments.size());
    if (quotes.size() == 1 && isInOrder && (unquoted.empty() || llvm::is_contained(unquoted, quotes[0])))
      return stop(position, quotes[0]); // x - x.detach() quotes x too
    if (unquoted.empty())
      return;
    if (quotesOtherLost || unquoted.size() != quotes.size())
      return refuse(position);
    for (int input : unquoted)
      stop(position, input);
  }

  void stop(int position, int input) {
    const std::string &value = graph.node(position).input(input);
    if (!trained.contains(value))
      return;
    edit.insertBefore(position);
    edit.setInput(position, input, edit.addStopGradient(value));
    ++many;
  }

  /// Is it the value that an argument names, or a step of the statement's own on the way from one?
  bool isQuoted(int node, const TracedStatement &statement, llvm::StringRef value) const {
    if (llvm::is_contained(statement.arguments, value) ||
        llvm::is_contained(statement.parameters, parameterNamed(value)))
      return true;
    const int producer = index.producerPosition(value);
    if (producer < 0)
      return false;
    const TracedStatement *made = statementOf(producer);
    return made && (made == statementOf(node) || llvm::is_contained(statement.arguments, made->name));
  }

  std::string parameterNamed(llvm::StringRef value) const {
    const onnx::TensorProto *tensor = index.initializer(value);
    return tensor ? parameterOf(signature, *tensor) : std::string();
  }

  void refuse(int position) {
    repair.model.lost.push_back({nameOf(graph.node(position)).str(),
                                 "may read what the model detaches, and the file does not tell; "
                                 "torch.onnx.export(..., dynamo=True, optimize=False) keeps it",
                                 /*isFunction=*/true});
  }

  const Repair &repair;
  onnx::GraphProto &graph;
  GraphIndex index;
  ExportSignature signature;
  TracedGraph traced;
  GraphEdit edit;
  llvm::StringSet<> trained;
  int many = 0;
};

} // namespace

llvm::Error stopGradients(const Repair &repair) {
  Stops(repair).run();
  return llvm::Error::success();
}

} // namespace fsdpc
