#include "frontend/onnx/control_nodes.h"

#include "frontend/onnx/control_flow.h"
#include <algorithm>
#include <limits>

namespace fsdpc {

namespace {

const onnx::GraphProto &bodyOf(const onnx::NodeProto &node, llvm::StringRef name) {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  if (!attribute || !attribute->has_g())
    throw Refusal{("it has no graph '" + name + "'").str()};
  return attribute->g();
}

/// Element i of a list attribute, or the default if the list is absent.
int64_t integerOf(const onnx::NodeProto &node, llvm::StringRef name, int64_t i) {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute && i < attribute->ints_size() ? attribute->ints(static_cast<int>(i)) : 0;
}

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
    if (trips > maxIterations && input(1).empty())
      throw tooMany(trips);
  }

  const onnx::GraphProto *next(Names &arguments) override {
    if (iteration >= trips || !goesOn)
      return nullptr;
    if (iteration == maxIterations)
      throw tooMany(std::min(trips, maxIterations + 1));
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
    return {"it runs " + std::to_string(trips) + (trips > maxIterations ? " times or more" : " times") +
            "; loops of up to " + std::to_string(maxIterations) +
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
    if (trips > maxIterations)
      throw Refusal{"it runs " + std::to_string(trips) + " times; scans of up to " + std::to_string(maxIterations) +
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

} // namespace

std::string ControlNode::stacked(const Names &slices, int64_t axis, bool isReversed) {
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

std::unique_ptr<ControlNode> makeControlNode(FlatGraph &flat, const onnx::NodeProto &node, Names inputs) {
  if (node.op_type() == "If")
    return std::make_unique<IfNode>(flat, node, std::move(inputs));
  if (node.op_type() == "Loop")
    return std::make_unique<LoopNode>(flat, node, std::move(inputs));
  return std::make_unique<ScanNode>(flat, node, std::move(inputs));
}

} // namespace fsdpc
