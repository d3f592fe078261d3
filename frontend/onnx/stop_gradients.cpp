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
    // Nodes are sorted, so the dependences of every input are known.
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

  /// Without the detach, q - z and q.detach() - z are equal, and the exporter keeps only one of them. True if the node
  /// reads, in place of a lost value, the result of another statement of the same operation.
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

  /// In place of the dropped value, the node reads the detached value, which its statement does not quote.
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

  /// True if the value is an argument of the statement, or an intermediate value of the statement itself.
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

/// The Sub of (a - b) + b, as an input of the Add; -1 if the node is anything else.
int straightThroughInput(const GraphIndex &index, const onnx::NodeProto &node) {
  if (node.op_type() != "Add" || !domainOf(node).empty() || node.input_size() != 2)
    return -1;
  for (int i = 0; i < 2; ++i) {
    const onnx::NodeProto *difference = index.producer(node.input(i));
    if (difference && difference->op_type() == "Sub" && domainOf(*difference).empty() &&
        difference->input_size() == 2 && difference->input(1) == node.input(1 - i))
      return i;
  }
  return -1;
}

/// For exports that do not record detach(). (a - b) + b is a, so it is written only to give a the derivative of b:
/// y.hard - y.soft.detach() + y.soft, z + (q - z).detach(). In both, no gradient flows through the difference, since a
/// is discrete in the first (straight-through estimator, Bengio et al., arXiv 1308.3432).
void stopStraightThrough(const Repair &repair) {
  onnx::GraphProto &graph = repair.model.graph();
  GraphIndex index(graph);
  GraphEdit edit(graph);
  int many = 0;
  for (int i = 0; i < graph.node_size(); ++i)
    if (int input = straightThroughInput(index, graph.node(i)); input >= 0) {
      edit.insertBefore(i);
      edit.setInput(i, input, edit.addStopGradient(graph.node(i).input(input)));
      ++many;
    }
  edit.apply();
  if (many > 0)
    repair.remarks.push_back("gradients stop at " + std::to_string(many) +
                             " differences a - b that are added to b: the exporter drops the detach() of a "
                             "straight-through estimator");
}

} // namespace

llvm::Error stopGradients(const Repair &repair) {
  if (exportSignature(repair.model.graph()).known())
    Stops(repair).run();
  else
    stopStraightThrough(repair);
  return llvm::Error::success();
}

} // namespace fsdpc
