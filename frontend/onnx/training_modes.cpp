#include "frontend/onnx/training_modes.h"

#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/traced_graph.h"
#include <cstring>

namespace fsdpc {

namespace {

/// The positional arguments of a statement, as written; a bracketed list is one argument.
llvm::SmallVector<llvm::StringRef, 8> positionalArguments(llvm::StringRef statement) {
  llvm::SmallVector<llvm::StringRef, 8> arguments;
  llvm::StringRef text = statement.split("](args = (").second;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool closes = text[i] == ')' || text[i] == ']' || text[i] == '}';
    if ((text[i] == ',' || closes) && depth == 0) {
      arguments.push_back(text.slice(start, i).trim());
      start = i + 1;
      if (closes)
        return arguments;
    }
    depth += closes ? -1 : text[i] == '(' || text[i] == '[' || text[i] == '{';
  }
  return {};
}

/// "0.1" of "kwargs = {dropout_p: 0.1, is_causal: True})".
llvm::StringRef namedArgument(llvm::StringRef statement, llvm::StringRef name) {
  llvm::StringRef text = statement.split(", kwargs = {").second;
  while (!text.empty()) {
    auto [key, rest] = text.split(": ");
    if (key.trim() == name)
      return rest.take_until([](char c) { return c == ',' || c == '}'; });
    text = rest.split(", ").second;
  }
  return "";
}

llvm::StringRef operationOf(llvm::StringRef statement) {
  return operationOfTarget(statement.split("[target=").second.split(']').first);
}

/// True if the BatchNorm normalized the batch by the batch's statistics and updated the running ones, which the node
/// reads.
bool wasBatchNormInTraining(llvm::StringRef statement) {
  llvm::StringRef operation = operationOf(statement);
  if (operation != "_native_batch_norm_legit_functional" && operation != "_native_batch_norm_legit" &&
      operation != "native_batch_norm" && operation != "batch_norm")
    return false;
  llvm::SmallVector<llvm::StringRef, 8> arguments = positionalArguments(statement);
  return arguments.size() > 5 && arguments[3].starts_with("%") && arguments[5] == "True";
}

/// The dropout ratio of an attention statement; 0 for any other statement.
double attentionDropoutOf(llvm::StringRef statement) {
  if (operationOf(statement) != "scaled_dot_product_attention")
    return 0;
  llvm::SmallVector<llvm::StringRef, 8> arguments = positionalArguments(statement);
  double ratio = 0;
  llvm::StringRef text = arguments.size() > 4 ? arguments[4] : namedArgument(statement, "dropout_p");
  return !text.empty() && !text.getAsDouble(ratio) && ratio > 0 && ratio <= 1 ? ratio : 0;
}

class TrainingModes {
public:
  TrainingModes(OnnxModel &model, bool restoresDropout)
      : restoresDropout(restoresDropout), graph(model.graph()), edit(graph) {}

  int batchNorms = 0, dropouts = 0;

  void run() {
    for (int i = 0; i < graph.node_size(); ++i) {
      const onnx::NodeProto &node = graph.node(i);
      if (!domainOf(node).empty())
        continue;
      if (node.op_type() == "BatchNormalization")
        batchNorms += !isTraining(node) && wasBatchNormInTraining(metadataOf(node, statementKey));
      else if (node.op_type() == "Softmax" && node.output_size() == 1)
        visitSoftmax(i);
    }
    edit.apply();
  }

private:
  static bool isTraining(const onnx::NodeProto &node) {
    const onnx::AttributeProto *mode = attributeOf(node, "training_mode");
    return mode && mode->i() != 0;
  }

  void visitSoftmax(int position) {
    onnx::NodeProto &softmax = *graph.mutable_node(position);
    const float ratio = static_cast<float>(attentionDropoutOf(metadataOf(softmax, statementKey)));
    if (ratio == 0)
      return;
    ++dropouts;
    if (!restoresDropout)
      return;
    const std::string whole = softmax.output(0), name = whole + ".before_dropout";
    onnx::NodeProto &dropout = edit.addNodeAfter(position);
    dropout.set_op_type("Dropout");
    dropout.set_name(softmax.name() + ".dropout");
    dropout.add_input(name);
    dropout.add_input(scalar(name + ".ratio", onnx::TensorProto::FLOAT, ratio));
    dropout.add_input(scalar(name + ".training", onnx::TensorProto::BOOL, true));
    dropout.add_output(whole);
    *dropout.mutable_metadata_props() = softmax.metadata_props();
    softmax.set_output(0, name);
  }

  template <class T>
  std::string scalar(const std::string &name, int32_t type, T value) {
    llvm::SmallVector<uint8_t, 4> bytes(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
    edit.addTensor(name, type, {}, bytes, "");
    return name;
  }

  const bool restoresDropout;
  onnx::GraphProto &graph;
  GraphEdit edit;
};

} // namespace

std::vector<std::string> restoreTrainingModes(OnnxModel &model, TrainMode mode) {
  if (mode == TrainMode::eval)
    return {};
  TrainingModes modes(model, mode == TrainMode::train);
  modes.run();
  std::vector<std::string> notes;
  if (modes.batchNorms > 0 && mode == TrainMode::keep)
    notes.push_back(
        "the exporter wrote " + std::to_string(modes.batchNorms) +
        " BatchNormalization for inference that the model has in training mode; their running statistics are "
        "taken as they are (--train_mode train: those of the batch)");
  if (modes.dropouts > 0)
    notes.push_back(
        "the exporter left out the dropout of " + std::to_string(modes.dropouts) + " scaled_dot_product_attention; " +
        (mode == TrainMode::train ? "it is restored" : "the model trains without (--train_mode train restores it)"));
  return notes;
}

} // namespace fsdpc
