#include "frontend/onnx/translate_graph.h"

#include "frontend/onnx/drawn_masks.h"
#include "frontend/onnx/known_values.h"
#include "frontend/onnx/model_loss.h"
#include "frontend/onnx/translate/fold.h"
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include "ir/eval/known_value.h"
#include "ir/reserved_names.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

class GraphTranslation {
public:
  GraphTranslation(const OnnxModel &model, const RecoveredParameters &recovered, const ImportOptions &options,
                   std::vector<std::string> &remarks)
      : model(model), recovered(recovered), remarks(remarks), module(std::make_unique<Module>()),
        function(*module->addFunction(FunctionKind::forward)), builder(function), state(model, builder, options) {
    for (const onnx::TensorProto &tensor : model.graph().initializer())
      initializers[tensor.name()] = &tensor;
  }

  llvm::Expected<std::unique_ptr<Module>> run(llvm::ArrayRef<GraphInput> inputs) {
    module->name = model.graph().name().empty() ? "model" : model.graph().name();
    module->parameters = recovered.parameters;
    addInputs(inputs);
    std::vector<std::string> scopes = moduleScopes(model.graph());
    module->classes = moduleClasses(model.graph());
    for (int i = 0; i < model.graph().node_size(); ++i)
      translate(model.graph().node(i), scopes[i]);
    llvm::SmallVector<Value *, 4> results = outputs();
    if (!faults.empty())
      return llvm::createStringError(model.path + ": cannot translate:" + faults);
    builder.setSource("");
    appendModelLoss(*module, builder, results, resultNames);
    builder.ret(results, resultNames);
    recognizeDrawnMasks(function, state.trainMode != TrainMode::eval);
    eraseUnused();
    dropUnusedParameters();
    return std::move(module);
  }

  void addInputs(llvm::ArrayRef<GraphInput> inputs) {
    for (const GraphInput &input : inputs)
      values[input.name].tensor = function.addArgument(ArgumentKind::input, input.name, input.type);
  }

  void addInitializer(const onnx::TensorProto &tensor) { initializers[tensor.name()] = &tensor; }

  void translate(const onnx::NodeProto &node, llvm::StringRef scope) {
    builder.setSource((scope + "|" + nameOf(node)).str());
    if (mayWait(node))
      waiting[node.output(0)] = &node;
    else
      translateNode(node);
  }

  /// The translation of a name; empty if there is none, because of an error or a skipped node.
  Translated valueOf(llvm::StringRef name) {
    auto found = values.find(name);
    if (found != values.end())
      return found->second;
    if (waiting.count(name))
      return valueOfWaiting(name);
    auto tensor = initializers.find(name);
    return values[name] = {tensor == initializers.end() ? nullptr : valueOfInitializer(*tensor->second), nullptr};
  }

private:
  /// An initializer under another name or transposed. The chain of such nodes may be long.
  Translated valueOfWaiting(llvm::StringRef name) {
    std::vector<const onnx::NodeProto *> chain;
    for (auto next = waiting.find(name); next != waiting.end(); next = waiting.find(chain.back()->input(0)))
      chain.push_back(next->second);
    for (const onnx::NodeProto *node : llvm::reverse(chain)) {
      waiting.erase(node->output(0));
      translateNode(*node);
    }
    return values.lookup(name);
  }

  /// Identity and Transpose nodes of initializers are delayed until their first use, where parameters are read.
  bool mayWait(const onnx::NodeProto &node) const {
    bool isAlias = domainOf(node).empty() && (node.op_type() == "Identity" || node.op_type() == "Transpose");
    return isAlias && node.input_size() == 1 && node.output_size() == 1 &&
           (waiting.count(node.input(0)) || (initializers.count(node.input(0)) && !values.count(node.input(0))));
  }

  Value *valueOfInitializer(const onnx::TensorProto &tensor) {
    auto parameter = recovered.byInitializer.find(tensor.name());
    if (parameter != recovered.byInitializer.end())
      return readParameter(recovered.parameters[parameter->second]);
    llvm::Expected<Dense> dense = readDense(model, tensor);
    if (!dense) {
      faults += "\n  " + llvm::toString(dense.takeError());
      return nullptr;
    }
    Value *value =
        makeConstant(builder, Type(dense->dtype(), shapeOf(tensor)), state.constants.shared(std::move(*dense)));
    value->setName(tensor.name());
    return value;
  }

  /// Reads a parameter in its own layout and converts it to the file's.
  Value *readParameter(const Parameter &parameter) {
    State state;
    state.name = parameter.name;
    state.role = parameter.isBuffer ? StateRole::buffer : StateRole::parameter;
    state.type = parameter.type;
    state.trainable = parameter.trainable;
    Value *value = builder.readState(module->addState(state));
    if (!parameter.permutation.empty())
      value = builder.transpose(value, parameter.permutation);
    if (!parameter.fileShape.empty())
      value = builder.reshape(value, parameter.fileShape);
    return value;
  }

  void translateNode(const onnx::NodeProto &node) {
    llvm::SmallVector<Translated, 8> inputs;
    for (const std::string &name : node.input()) {
      inputs.push_back(name.empty() ? Translated() : valueOf(name));
      if (!name.empty() && !inputs.back().exists())
        return skip(node);
    }
    NodeTranslation translation(state, node, inputs);
    TranslateFunction function = findTranslation(domainOf(node), node.op_type(), translation.opset);
    try {
      if (!function)
        translation.reject("this op is not supported");
      function(translation);
      for (int i = 0; i < node.output_size(); ++i)
        if (translation.wantsOutput(i) && !translation.results()[i].exists())
          translation.reject("its output " + llvm::Twine(i) + " '" + node.output(i) + "' is not supported");
    } catch (const Rejection &rejection) {
      report(node, inputs, rejection.why);
      return skip(node);
    }
    for (int i = 0; i < node.output_size(); ++i)
      if (translation.wantsOutput(i))
        define(node.output(i), translation.results()[i]);
  }

  void define(llvm::StringRef name, const Translated &translated) {
    // Inputs, parameters and values that a node only passes on keep their first name.
    Value *value = translated.tensor;
    if (value && value->definer() && value->name().empty())
      value->setName(name);
    values[name] = translated;
  }

  /// Defines the outputs of an untranslated node, without values.
  void skip(const onnx::NodeProto &node) {
    for (const std::string &output : node.output())
      values[output] = {};
  }

  void report(const onnx::NodeProto &node, llvm::ArrayRef<Translated> inputs, llvm::StringRef why) {
    std::vector<std::string> types;
    for (const Translated &input : inputs)
      types.push_back(input.tensor     ? toString(input.tensor->type())
                      : input.sequence ? "sequence of " + std::to_string(input.sequence->size())
                                       : "-");
    faults += "\n  " + describe(model, node) + ", inputs " + (types.empty() ? "none" : llvm::join(types, ", ")) + ": " +
              why.str();
  }

  llvm::SmallVector<Value *, 4> outputs() {
    llvm::SmallVector<Value *, 4> results;
    llvm::StringSet<> known; // the TorchScript exporter lists a tensor once for each place of the module's result
    for (const onnx::ValueInfoProto &output : model.graph().output()) {
      if (!known.insert(output.name()).second)
        continue;
      Value *value = valueOf(output.name()).tensor;
      if (!value && faults.empty())
        faults += "\n  nothing computes the output '" + output.name() + "' as a tensor";
      if (names::isLossPart(output.name()))
        faults += "\n  the output '" + output.name() +
                  "' has a name that the compiler gives itself; export the model with another one "
                  "(torch.onnx.export: output_names)";
      results.push_back(value);
      resultNames.push_back(output.name());
    }
    return results;
  }

  /// Walks backwards, so that nodes used only by dead nodes are erased too.
  void eraseUnused() {
    for (Node *node = function.back(); node;) {
      Node *previous = node->previous();
      bool isUsed = node->op() == Op::ret;
      for (unsigned i = 0; i < node->resultCount(); ++i)
        isUsed |= node->result(i)->hasUses();
      if (!isUsed)
        node->erase();
      node = previous;
    }
  }

  void dropUnusedParameters() {
    llvm::StringSet<> readStates;
    for (Node *node : function)
      if (node->op() == Op::read)
        readStates.insert(node->get<StateAttributes>().state.name);
    std::deque<State> states;
    for (State &state : module->states)
      if (readStates.contains(state.name))
        states.push_back(std::move(state));
    module->replaceStates(std::move(states));
    auto isUnused = [&](const Parameter &parameter) { return !readStates.contains(parameter.name); };
    for (const Parameter &parameter : module->parameters)
      if (isUnused(parameter))
        remarks.push_back("'" + parameter.name + "' influences no output and is left out");
    llvm::erase_if(module->parameters, isUnused);
  }

  const OnnxModel &model;
  const RecoveredParameters &recovered;
  std::vector<std::string> &remarks;
  std::unique_ptr<Module> module;
  Function &function;
  Builder builder;
  TranslationState state;
  llvm::StringMap<const onnx::TensorProto *> initializers;
  llvm::StringMap<const onnx::NodeProto *> waiting;
  llvm::StringMap<Translated> values;
  std::vector<std::string> resultNames;
  std::string faults;
};

} // namespace

struct KnownValues::Implementation {
  Implementation(const OnnxModel &model) : translation(model, recovered, options, remarks) {}
  RecoveredParameters recovered;
  ImportOptions options;
  std::vector<std::string> remarks;
  GraphTranslation translation;
};

KnownValues::KnownValues(const OnnxModel &model, llvm::ArrayRef<GraphInput> inputs)
    : implementation(std::make_unique<Implementation>(model)) {
  implementation->translation.addInputs(inputs);
  for (const onnx::TensorProto &tensor : model.graph().initializer())
    add(tensor);
}

KnownValues::~KnownValues() = default;

void KnownValues::add(const onnx::TensorProto &initializer) {
  RecoveredParameters &recovered = implementation->recovered;
  std::optional<DType> dtype = dtypeOf(initializer.data_type());
  if (dtype && isFloat(*dtype) && elementsOf(initializer) > 1) {
    Parameter parameter;
    parameter.name = parameter.initializer = initializer.name();
    parameter.type = Type(*dtype, shapeOf(initializer));
    recovered.byInitializer[initializer.name()] = recovered.parameters.size();
    recovered.parameters.push_back(std::move(parameter));
  }
  implementation->translation.addInitializer(initializer);
}

void KnownValues::add(const onnx::NodeProto &node) { implementation->translation.translate(node, ""); }

std::optional<int64_t> KnownValues::integer(llvm::StringRef name) {
  const Value *value = implementation->translation.valueOf(name).tensor;
  bool isOneInteger = value && value->type().elements() == 1 && !isFloat(value->type().dtype());
  if (!isOneInteger)
    return std::nullopt;
  if (const Node *definer = value->definer(); definer && definer->op() == Op::constant)
    return definer->get<ConstantAttributes>().value.integerAt(0);
  std::optional<HostTensor> known = knownValue(value);
  return known ? std::optional<int64_t>(static_cast<int64_t>(known->values[0])) : std::nullopt;
}

std::optional<Type> KnownValues::type(llvm::StringRef name) {
  const Value *value = implementation->translation.valueOf(name).tensor;
  return value ? std::optional<Type>(value->type()) : std::nullopt;
}

llvm::Expected<std::unique_ptr<Module>> translateGraph(const OnnxModel &model, const RecoveredParameters &recovered,
                                                       llvm::ArrayRef<GraphInput> inputs, const ImportOptions &options,
                                                       std::vector<std::string> &remarks) {
  return GraphTranslation(model, recovered, options, remarks).run(inputs);
}

} // namespace fsdpc
