#include "frontend/onnx/control_flow.h"

#include "frontend/onnx/control_nodes.h"
#include "frontend/onnx/function_calls.h"
#include "frontend/onnx/subgraphs.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc {

namespace {

/// A graph that is being copied, with the new names of its values. The first frame is the model's graph, whose names
/// stay.
struct Frame {
  const onnx::GraphProto *graph;
  std::unique_ptr<ControlNode> control; ///< the node that the graph is a body of
  std::string suffix;
  int64_t repeats = 1; ///< the minimum number of copies of the graph in total
  int next = 0;
  llvm::StringMap<std::string> names = {};
};

class Unrolling {
public:
  Unrolling(OnnxModel &model, llvm::ArrayRef<GraphInput> inputs) : model(model), flat(model, inputs) {}

  llvm::Error run() {
    frames.push_back({&model.graph(), nullptr, ""});
    const onnx::NodeProto *node = nullptr;
    try {
      while (!isDone()) {
        Frame &frame = frames.back();
        bool isAtEnd = frame.next == frame.graph->node_size();
        node = isAtEnd ? &frame.control->node : &frame.graph->node(frame.next++);
        if (isAtEnd)
          leaveBody();
        else
          copy(*node);
      }
    } catch (const Refusal &refusal) {
      return llvm::createStringError(model.path + ": cannot unroll:\n  " + describe(model, *node) + ": " + refusal.why);
    }
    model.graph().mutable_node()->Swap(&flat.nodes);
    return llvm::Error::success();
  }

private:
  bool isDone() const { return frames.size() == 1 && frames[0].next == frames[0].graph->node_size(); }

  std::string flatName(const std::string &name) const {
    if (!name.empty())
      for (const Frame &frame : llvm::reverse(frames))
        if (auto found = frame.names.find(name); found != frame.names.end())
          return found->second;
    return name;
  }

  void copy(const onnx::NodeProto &node) {
    if (isControlFlow(node))
      return enter(makeControl(node));
    bool hasBody = false;
    forEachBody(node, [&](const onnx::GraphProto &) { hasBody = true; });
    if (hasBody && domainOf(node).empty())
      throw Refusal{"this op with a graph inside is not supported"};
    bool isOnce = frames.size() > 1 && node.op_type() == "Constant" && node.output_size() == 1;
    if (auto found = constants.find(&node); isOnce && found != constants.end()) {
      frames.back().names[node.output(0)] = found->second;
      return;
    }
    onnx::NodeProto copied = node;
    if (frames.size() > 1)
      rename(copied);
    if (isOnce)
      constants[&node] = copied.output(0);
    flat.add(std::move(copied));
  }

  void rename(onnx::NodeProto &node) {
    for (std::string &input : *node.mutable_input())
      input = flatName(input);
    if (!node.name().empty())
      node.set_name(node.name() + frames.back().suffix);
    for (std::string &output : *node.mutable_output())
      if (!output.empty())
        output = frames.back().names[output] = flat.unusedName(output + frames.back().suffix);
  }

  std::unique_ptr<ControlNode> makeControl(const onnx::NodeProto &node) {
    Names inputs;
    for (const std::string &input : node.input())
      inputs.push_back(flatName(input));
    return makeControlNode(flat, node, std::move(inputs));
  }

  /// Starts the next body of a node, or passes on the results of the last one.
  void enter(std::unique_ptr<ControlNode> control) {
    Names arguments;
    const onnx::GraphProto *body = control->next(arguments);
    if (!body)
      return defineResults(*control);
    if (static_cast<int>(arguments.size()) != body->input_size())
      throw Refusal{"its body takes " + std::to_string(body->input_size()) + " inputs instead of " +
                    std::to_string(arguments.size())};
    std::string suffix = frames.back().suffix + control->suffix();
    int64_t repeats = control->surely() ? frames.back().repeats * control->surely() : 1;
    if (repeats * (1 + body->node_size()) > maxExpandedNodes)
      throw tooManyNodes();
    frames.push_back({body, std::move(control), suffix, repeats});
    for (const onnx::TensorProto &tensor : body->initializer())
      frames.back().names[tensor.name()] = hoisted(tensor);
    for (size_t i = 0; i < arguments.size(); ++i)
      frames.back().names[body->input(static_cast<int>(i)).name()] = arguments[i];
  }

  const std::string &hoisted(const onnx::TensorProto &tensor) {
    std::string &name = initializers[&tensor];
    if (name.empty())
      name = flat.addInitializer(tensor);
    return name;
  }

  void leaveBody() {
    Names outputs;
    for (const onnx::ValueInfoProto &output : frames.back().graph->output())
      outputs.push_back(flatName(output.name()));
    std::unique_ptr<ControlNode> control = std::move(frames.back().control);
    frames.pop_back();
    control->take(outputs);
    enter(std::move(control));
  }

  void defineResults(ControlNode &control) {
    Names results = control.results();
    const onnx::NodeProto &node = control.node;
    if (node.output_size() > static_cast<int>(results.size()))
      throw Refusal{"it has " + std::to_string(node.output_size()) + " outputs, its body gives " +
                    std::to_string(results.size())};
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i).empty())
        continue;
      frames.back().names[node.output(i)] = results[i];
      if (frames.size() == 1)
        addAlias(node.output(i), results[i]);
    }
  }

  /// Names of the model's graph stay, because they may be its outputs.
  void addAlias(const std::string &name, const std::string &source) {
    onnx::NodeProto identity;
    identity.set_op_type("Identity");
    identity.set_name(name);
    identity.add_input(source);
    identity.add_output(name);
    frames.back().names.erase(name);
    flat.add(std::move(identity));
  }

  OnnxModel &model;
  FlatGraph flat;
  std::vector<Frame> frames;
  llvm::DenseMap<const onnx::TensorProto *, std::string> initializers;
  llvm::DenseMap<const onnx::NodeProto *, std::string> constants; ///< of Constants in bodies: one for all iterations
};

} // namespace

bool isControlFlow(const onnx::NodeProto &node) {
  return domainOf(node).empty() && (node.op_type() == "If" || node.op_type() == "Loop" || node.op_type() == "Scan");
}

bool hasControlFlow(const OnnxModel &model) { return llvm::any_of(model.graph().node(), isControlFlow); }

llvm::Error unrollControlFlow(OnnxModel &model, const ImportOptions &options) {
  llvm::Expected<std::vector<GraphInput>> inputs = bindInputs(model, options);
  if (!inputs)
    return inputs.takeError();
  return Unrolling(model, *inputs).run();
}

} // namespace fsdpc
