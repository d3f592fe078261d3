#include "frontend/onnx/control_flow.h"

#include "frontend/onnx/function_calls.h"
#include "frontend/onnx/inputs.h"
#include "frontend/onnx/known_values.h"
#include "frontend/onnx/subgraphs.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"
#include <algorithm>
#include <limits>

namespace fsdpc {

namespace {

using Names = std::vector<std::string>;

/// Thrown where a node cannot be unrolled; does not leave this file.
struct Refusal {
  std::string why;
};

Refusal tooManyNodes() {
  return {"unrolled, the model has more than " + std::to_string(mostExpandedNodes) +
          " nodes or 2 GiB. Use shorter inputs, or fewer iterations"};
}

const onnx::GraphProto &bodyOf(const onnx::NodeProto &node, llvm::StringRef name) {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  if (!attribute || !attribute->has_g())
    throw Refusal{("it has no graph '" + name + "'").str()};
  return attribute->g();
}

/// Element i of a list attribute, or the default where the list is absent.
int64_t integerOf(const onnx::NodeProto &node, llvm::StringRef name, int64_t i) {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute && i < attribute->ints_size() ? attribute->ints(static_cast<int>(i)) : 0;
}

/// The graph without control flow, as it grows.
class FlatGraph {
public:
  FlatGraph(OnnxModel &model, llvm::ArrayRef<GraphInput> inputs) : model(model), known(model, inputs) {
    const onnx::GraphProto &graph = model.graph();
    for (const onnx::TensorProto &tensor : graph.initializer())
      used.insert(tensor.name());
    for (const onnx::ValueInfoProto &input : graph.input())
      used.insert(input.name());
    for (const onnx::NodeProto &node : graph.node())
      for (const std::string &output : node.output())
        used.insert(output);
  }

  std::string unusedName(const std::string &wanted) {
    std::string name = wanted;
    while (!used.insert(name).second)
      name += "_";
    return name;
  }

  /// Inputs and outputs are named by now.
  void add(onnx::NodeProto node) {
    bytes += static_cast<int64_t>(node.ByteSizeLong());
    if (nodes.size() >= mostExpandedNodes || bytes > mostExpandedBytes)
      throw tooManyNodes();
    *nodes.Add() = std::move(node);
    known.add(nodes[nodes.size() - 1]);
  }

  std::string addInitializer(const onnx::TensorProto &tensor) {
    onnx::TensorProto *copy = model.graph().add_initializer();
    *copy = tensor;
    copy->set_name(unusedName(tensor.name()));
    known.add(*copy);
    return copy->name();
  }

  std::string addNode(llvm::StringRef op, const Names &inputs, const std::string &wanted,
                      std::optional<int64_t> axis = std::nullopt) {
    onnx::NodeProto node;
    node.set_op_type(op.str());
    for (const std::string &input : inputs)
      node.add_input(input);
    std::string name = unusedName(wanted);
    node.add_output(name);
    node.set_name(name);
    if (axis) {
      onnx::AttributeProto *attribute = node.add_attribute();
      attribute->set_name("axis");
      attribute->set_type(onnx::AttributeProto::INT);
      attribute->set_i(*axis);
    }
    add(std::move(node));
    return name;
  }

  std::string addConstant(int64_t value, bool isBool, bool isLine, const std::string &wanted) {
    onnx::NodeProto node;
    node.set_op_type("Constant");
    std::string name = unusedName(wanted);
    node.add_output(name);
    node.set_name(name);
    onnx::AttributeProto *attribute = node.add_attribute();
    attribute->set_name("value");
    attribute->set_type(onnx::AttributeProto::TENSOR);
    attribute->mutable_t()->set_data_type(isBool ? onnx::TensorProto::BOOL : onnx::TensorProto::INT64);
    if (isLine)
      attribute->mutable_t()->add_dims(1);
    if (isBool)
      attribute->mutable_t()->add_int32_data(value != 0);
    else
      attribute->mutable_t()->add_int64_data(value);
    add(std::move(node));
    return name;
  }

  OnnxModel &model;
  KnownValues known;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;

private:
  llvm::StringSet<> used;
  int64_t bytes = 0;
};

/// One If, Loop or Scan that is being run: which body comes next, with which inputs, and what becomes of its outputs.
class ControlNode {
public:
  ControlNode(FlatGraph &flat, const onnx::NodeProto &node, Names inputs)
      : node(node), flat(flat), inputs(std::move(inputs)) {}
  virtual ~ControlNode() = default;
  /// The body to run now; null at the end. `arguments`: names of its inputs, in order.
  virtual const onnx::GraphProto *next(Names &arguments) = 0;
  virtual void take(const Names &outputs) = 0;
  /// Names of the node's outputs.
  virtual Names results() = 0;
  virtual std::string suffix() const = 0; ///< of names in the body that runs
  /// How often the body runs at least, from the start on; 0 for what an iteration of an outer loop may not run at all.
  virtual int64_t surely() const { return 0; }
  const onnx::NodeProto &node;

protected:
  const std::string &input(size_t i) const {
    static const std::string none;
    return i < inputs.size() ? inputs[i] : none;
  }

  /// All tensors of one scan output beside each other along an axis of their own.
  std::string stacked(const Names &slices, int64_t axis, bool isReversed) {
    if (slices.empty())
      throw Refusal{"it runs 0 times, so that one of its outputs is empty"};
    std::string axes = flat.addConstant(axis, false, true, slices[0] + ".axis");
    Names parts;
    for (const std::string &slice : slices)
      parts.push_back(flat.addNode("Unsqueeze", {slice, axes}, slice + ".slice"));
    if (isReversed)
      std::reverse(parts.begin(), parts.end());
    return parts.size() == 1 ? parts[0] : flat.addNode("Concat", parts, slices[0] + ".all", axis);
  }

  FlatGraph &flat;
  Names inputs;
};

class IfNode : public ControlNode {
public:
  using ControlNode::ControlNode;
  const onnx::GraphProto *next(Names &) override {
    if (isDone)
      return nullptr;
    std::optional<int64_t> condition = flat.known.integer(input(0));
    if (!condition)
      throw Refusal{"its condition depends on the model's inputs; only one that shapes and constants decide can be "
                    "compiled. Export with dynamo=True and static shapes, or write the choice with torch.where"};
    isDone = true;
    branch = *condition ? "then" : "else";
    return &bodyOf(node, *condition ? "then_branch" : "else_branch");
  }
  void take(const Names &outputs) override { taken = outputs; }
  Names results() override { return taken; }
  std::string suffix() const override { return "." + branch; }

private:
  bool isDone = false;
  std::string branch;
  Names taken;
};

class LoopNode : public ControlNode {
public:
  LoopNode(FlatGraph &flat, const onnx::NodeProto &node, Names names)
      : ControlNode(flat, node, std::move(names)), body(bodyOf(node, "body")) {
    for (size_t i = 2; i < inputs.size(); ++i)
      carried.push_back(inputs[i]);
    if (body.output_size() < 1 + static_cast<int>(carried.size()))
      throw Refusal{"its body has too few outputs"};
    scanned.resize(body.output_size() - 1 - carried.size());
    if (!input(0).empty())
      trips = known(input(0), "its trip count");
    goesOn = input(1).empty() || known(input(1), "its condition");
    if (trips > mostIterations && input(1).empty())
      throw tooMany(trips);
  }

  const onnx::GraphProto *next(Names &arguments) override {
    if (iteration >= trips || !goesOn)
      return nullptr;
    if (iteration == mostIterations)
      throw tooMany(std::min(trips, mostIterations + 1));
    arguments = {flat.addConstant(iteration, false, false, "iteration" + suffix()),
                 flat.addConstant(1, true, false, "condition" + suffix())};
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    return &body;
  }

  void take(const Names &outputs) override {
    if (!input(1).empty())
      goesOn = known(outputs[0], "its condition after iteration " + std::to_string(iteration));
    std::copy_n(outputs.begin() + 1, carried.size(), carried.begin());
    for (size_t i = 0; i < scanned.size(); ++i)
      scanned[i].push_back(outputs[1 + carried.size() + i]);
    ++iteration;
  }

  Names results() override {
    Names names = carried;
    for (size_t i = 0; i < scanned.size(); ++i) {
      int output = static_cast<int>(names.size());
      bool isUsed = output < node.output_size() && !node.output(output).empty();
      names.push_back(isUsed ? stacked(scanned[i], 0, false) : "");
    }
    return names;
  }

  std::string suffix() const override { return "." + std::to_string(iteration); }
  int64_t surely() const override { return input(1).empty() ? std::max<int64_t>(trips, 1) : 0; }

private:
  int64_t known(const std::string &name, const std::string &what) const {
    std::optional<int64_t> value = flat.known.integer(name);
    if (!value)
      throw Refusal{what + " depends on the model's inputs; only loops that shapes and constants end can be unrolled. "
                           "Export with static shapes, or give open dims with --dim"};
    return *value;
  }

  static Refusal tooMany(int64_t trips) {
    return {"it runs " + std::to_string(trips) + (trips > mostIterations ? " times or more" : " times") +
            "; loops of up to " + std::to_string(mostIterations) +
            " iterations are unrolled. Use shorter inputs, or compute all steps at once"};
  }

  const onnx::GraphProto &body;
  int64_t trips = std::numeric_limits<int64_t>::max(), iteration = 0;
  bool goesOn = true;
  Names carried;
  std::vector<Names> scanned;
};

class ScanNode : public ControlNode {
public:
  ScanNode(FlatGraph &flat, const onnx::NodeProto &node, Names names)
      : ControlNode(flat, node, std::move(names)), body(bodyOf(node, "body")) {
    const onnx::AttributeProto *count = attributeOf(node, "num_scan_inputs");
    int64_t scans = count ? count->i() : 0, all = static_cast<int64_t>(inputs.size());
    if (scans < 1 || scans > all || body.output_size() < all - scans)
      throw Refusal{"num_scan_inputs is " + std::to_string(scans) + " of " + std::to_string(all) + " inputs"};
    carried.assign(inputs.begin(), inputs.end() - scans);
    scanInputs.assign(inputs.end() - scans, inputs.end());
    scanned.resize(body.output_size() - carried.size());
    for (int64_t i = 0; i < scans; ++i)
      setTrips(i);
    if (trips > mostIterations)
      throw Refusal{"it runs " + std::to_string(trips) + " times; scans of up to " + std::to_string(mostIterations) +
                    " steps are unrolled. Use shorter inputs, or compute all steps at once"};
  }

  const onnx::GraphProto *next(Names &arguments) override {
    if (iteration == trips)
      return nullptr;
    arguments = carried;
    for (size_t i = 0; i < scanInputs.size(); ++i) {
      int64_t scan = static_cast<int64_t>(i);
      bool isReversed = integerOf(node, "scan_input_directions", scan) != 0;
      int64_t at = isReversed ? trips - 1 - iteration : iteration;
      std::string index = flat.addConstant(at, false, false, scanInputs[i] + ".index" + suffix());
      arguments.push_back(flat.addNode("Gather", {scanInputs[i], index}, scanInputs[i] + ".slice" + suffix(),
                                       integerOf(node, "scan_input_axes", scan)));
    }
    return &body;
  }

  void take(const Names &outputs) override {
    std::copy_n(outputs.begin(), carried.size(), carried.begin());
    for (size_t i = 0; i < scanned.size(); ++i)
      scanned[i].push_back(outputs[carried.size() + i]);
    ++iteration;
  }

  Names results() override {
    Names names = carried;
    for (size_t i = 0; i < scanned.size(); ++i) {
      int64_t scan = static_cast<int64_t>(i);
      names.push_back(stacked(scanned[i], integerOf(node, "scan_output_axes", scan),
                              integerOf(node, "scan_output_directions", scan) != 0));
    }
    return names;
  }

  std::string suffix() const override { return "." + std::to_string(iteration); }
  int64_t surely() const override { return std::max<int64_t>(trips, 1); }

private:
  void setTrips(int64_t scan) {
    std::optional<Type> type = flat.known.type(scanInputs[scan]);
    int64_t axis = integerOf(node, "scan_input_axes", scan);
    if (!type)
      throw Refusal{"the shape of '" + scanInputs[scan] + "' is not known"};
    axis += axis < 0 ? type->rank() : 0;
    bool fits = axis >= 0 && axis < type->rank() && (scan == 0 || type->dim(axis) == trips);
    if (!fits)
      throw Refusal{"its scan inputs differ in length"};
    trips = type->dim(axis);
  }

  const onnx::GraphProto &body;
  int64_t trips = 0, iteration = 0;
  Names carried, scanInputs;
  std::vector<Names> scanned;
};

/// A graph that is being copied, with what its own names have become. The first frame is the model's graph, whose names
/// stay.
struct Frame {
  const onnx::GraphProto *graph;
  std::unique_ptr<ControlNode> control; ///< that the graph is a body of
  std::string suffix;
  int64_t repeats = 1; ///< how often the graph is copied in all, at least
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
    if (node.op_type() == "If")
      return std::make_unique<IfNode>(flat, node, std::move(inputs));
    if (node.op_type() == "Loop")
      return std::make_unique<LoopNode>(flat, node, std::move(inputs));
    return std::make_unique<ScanNode>(flat, node, std::move(inputs));
  }

  /// Starts the next body of a node, or hands on what the last one left.
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
    if (repeats * (1 + body->node_size()) > mostExpandedNodes)
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

  /// Names of the model's graph stay, because it may have them as outputs.
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
  llvm::DenseMap<const onnx::NodeProto *, std::string> constants; ///< that bodies hold: one for all iterations
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
