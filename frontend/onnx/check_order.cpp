#include "frontend/onnx/check_order.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <vector>

namespace fsdpc {

namespace {

/// Edges from a node to the producers of its inputs.
class Dependence {
public:
  explicit Dependence(const onnx::GraphProto &graph) : graph(graph) {
    for (int i = 0; i < graph.node_size(); ++i)
      for (const std::string &output : graph.node(i).output())
        if (!output.empty())
          producers.try_emplace(output, i);
  }
  /// -1: no node.
  int producerOf(llvm::StringRef name) const {
    auto found = producers.find(name);
    return found == producers.end() ? -1 : found->second;
  }
  bool reaches(int from, int to) const {
    std::vector<int> waiting = {from};
    llvm::DenseSet<int> seen = {from};
    while (!waiting.empty()) {
      const int at = waiting.back();
      waiting.pop_back();
      if (at == to)
        return true;
      for (const std::string &input : graph.node(at).input())
        if (int next = producerOf(input); next >= 0 && seen.insert(next).second)
          waiting.push_back(next);
    }
    return false;
  }

private:
  const onnx::GraphProto &graph;
  llvm::StringMap<int> producers;
};

llvm::StringSet<> namesBeforeNodes(const onnx::GraphProto &graph) {
  llvm::StringSet<> names;
  for (const onnx::ValueInfoProto &input : graph.input())
    names.insert(input.name());
  for (const onnx::TensorProto &tensor : graph.initializer())
    names.insert(tensor.name());
  for (const onnx::SparseTensorProto &tensor : graph.sparse_initializer())
    names.insert(tensor.values().name());
  return names;
}

} // namespace

std::string misplacedInput(const OnnxModel &model) {
  const onnx::GraphProto &graph = model.graph();
  llvm::StringSet<> known = namesBeforeNodes(graph);
  for (int i = 0; i < graph.node_size(); ++i) {
    const onnx::NodeProto &node = graph.node(i);
    for (const std::string &input : node.input()) {
      if (input.empty() || known.contains(input))
        continue;
      const Dependence dependence(graph);
      const int producer = dependence.producerOf(input);
      const std::string reads = describe(model, node) + " reads '" + input + "', which ";
      if (producer < 0)
        return reads + "is no input, no initializer and no output of a node: the file has lost it";
      const std::string other = describe(model, graph.node(producer));
      return dependence.reaches(producer, i)
                 ? reads + "comes from " + other + ", and that one depends on it: the nodes form a cycle"
                 : reads + "comes from " + other + " further down: the nodes have to be in the order of computation";
    }
    for (const std::string &output : node.output())
      known.insert(output);
  }
  return "";
}

} // namespace fsdpc
