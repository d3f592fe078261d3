#include "frontend/onnx/function_calls.h"

#include "frontend/onnx/subgraphs.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

namespace fsdpc {

namespace {

// libonnx inlines by recursion; exporters nest functions a few levels deep.
constexpr int64_t deepestCalls = 100;

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

template <class NodeOrFunction>
std::string idOf(const NodeOrFunction &item, llvm::StringRef name) {
  llvm::StringRef domain = item.domain() == "ai.onnx" ? llvm::StringRef() : llvm::StringRef(item.domain());
  return (domain + ":" + name + (item.overload().empty() ? "" : ":" + item.overload())).str();
}

/// The size of one function, by itself and after inlining.
struct Body {
  std::string id;
  std::vector<int> calls; ///< with repetitions
  int64_t nodes = 0, bytes = 0, depth = 1;
  enum { unseen, open, done } visit = unseen;
};

class CallGraph {
public:
  explicit CallGraph(const OnnxModel &model) : model(model) {
    for (int i = 0; i < model.proto.functions_size(); ++i)
      positions.try_emplace(idOf(model.proto.functions(i), model.proto.functions(i).name()), i);
    for (const onnx::FunctionProto &function : model.proto.functions())
      bodies.push_back(bodyOf(function.node(), idOf(function, function.name())));
    bodies.push_back(bodyOf(model.graph().node(), "the graph"));
  }

  llvm::Error check() {
    for (size_t i = 0; i < bodies.size(); ++i)
      if (llvm::Error error = visitFrom(static_cast<int>(i)))
        return error;
    return llvm::Error::success();
  }

private:
  Body bodyOf(const Nodes &nodes, std::string id) const {
    Body body;
    body.id = std::move(id);
    forEachNode(nodes, [&](const onnx::NodeProto &node) {
      ++body.nodes;
      if (auto found = positions.find(idOf(node, node.op_type())); found != positions.end())
        body.calls.push_back(found->second);
    });
    for (const onnx::NodeProto &node : nodes)
      body.bytes += static_cast<int64_t>(node.ByteSizeLong());
    return body;
  }

  /// Sums sizes of callees before callers, on an explicit stack.
  llvm::Error visitFrom(int root) {
    std::vector<std::pair<int, size_t>> stack;
    if (bodies[root].visit == Body::unseen)
      stack.push_back({root, 0});
    while (!stack.empty()) {
      auto &[at, next] = stack.back();
      Body &body = bodies[at];
      body.visit = Body::open;
      if (next == body.calls.size()) {
        if (llvm::Error error = addUp(body))
          return error;
        body.visit = Body::done;
        stack.pop_back();
        continue;
      }
      int callee = body.calls[next++];
      if (bodies[callee].visit == Body::open)
        return recursion(stack, callee);
      if (bodies[callee].visit == Body::unseen)
        stack.push_back({callee, 0});
    }
    return llvm::Error::success();
  }

  llvm::Error addUp(Body &body) const {
    int deepest = -1;
    for (int call : body.calls) {
      const Body &callee = bodies[call];
      body.nodes = std::min(body.nodes + callee.nodes, maxExpandedNodes + 1);
      body.bytes = std::min(body.bytes + callee.bytes, maxExpandedBytes + 1);
      body.depth = std::max(body.depth, callee.depth + 1);
      if (deepest < 0 || callee.nodes > bodies[deepest].nodes)
        deepest = call;
    }
    if (deepest < 0)
      return llvm::Error::success();
    std::string calls = body.id + ", which calls " + bodies[deepest].id;
    if (body.depth > deepestCalls)
      return fault("its local functions call each other more than " + llvm::Twine(deepestCalls) + " deep: " + calls);
    if (body.nodes > maxExpandedNodes || body.bytes > maxExpandedBytes)
      return fault("its local functions become more than " + llvm::Twine(maxExpandedNodes) +
                   " nodes or 2 GiB when they are inlined: " + calls);
    return llvm::Error::success();
  }

  llvm::Error recursion(llvm::ArrayRef<std::pair<int, size_t>> stack, int callee) const {
    std::vector<std::string> names;
    auto first = llvm::find_if(stack, [&](const auto &entry) { return entry.first == callee; });
    for (auto entry = first; entry != stack.end(); ++entry)
      names.push_back(bodies[entry->first].id);
    names.push_back(bodies[callee].id);
    return fault("its local functions call themselves, so they cannot be inlined: " + llvm::join(names, " calls "));
  }

  llvm::Error fault(const llvm::Twine &why) const { return llvm::createStringError(model.path + ": " + why); }

  const OnnxModel &model;
  llvm::StringMap<int> positions;
  std::vector<Body> bodies;
};

} // namespace

llvm::Error checkFunctionCalls(const OnnxModel &model) {
  return model.proto.functions_size() == 0 ? llvm::Error::success() : CallGraph(model).check();
}

} // namespace fsdpc
