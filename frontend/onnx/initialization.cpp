#include "frontend/onnx/initialization.h"

#include "frontend/onnx/repair.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

constexpr char statedOrigin[] = "TrainingInfoProto.initialization";

/// Interprets one initialization graph in node order.
class InitializationGraph {
public:
  InitializationGraph(const OnnxModel &model, const onnx::GraphProto &graph) : model(model), graph(graph) {}

  llvm::Expected<llvm::StringMap<StatedStart>> run() {
    for (const onnx::TensorProto &tensor : graph.initializer())
      setValues(tensor.name(), tensor);
    for (const onnx::NodeProto &node : graph.node())
      if (llvm::Error error = follow(node))
        return error;
    return std::move(starts);
  }

private:
  void setValues(llvm::StringRef name, const onnx::TensorProto &tensor) {
    StatedStart &start = starts[name];
    start = {std::nullopt, tensor, shapeOf(tensor), ""};
    if (llvm::Error error = checkTensor(model, tensor))
      start.fault = llvm::toString(std::move(error));
  }

  void setDrawn(const onnx::NodeProto &node, Shape shape, InitialKind kind, double first, double second) {
    starts[node.output(0)] = {InitialValues{kind, first, second, statedOrigin}, {}, std::move(shape), ""};
  }

  void setFault(const onnx::NodeProto &node, const llvm::Twine &why) {
    for (const std::string &output : node.output())
      starts[output].fault = (describe(model, node) + ": " + why).str();
  }

  static double real(const onnx::NodeProto &node, llvm::StringRef name, double otherwise) {
    const onnx::AttributeProto *attribute = attributeOf(node, name);
    return attribute ? attribute->f() : otherwise;
  }

  const StatedStart *input(const onnx::NodeProto &node) const {
    auto found = node.input_size() > 0 ? starts.find(node.input(0)) : starts.end();
    return found == starts.end() || !found->second.fault.empty() ? nullptr : &found->second;
  }

  llvm::Error follow(const onnx::NodeProto &node) {
    using Follow = llvm::Error (InitializationGraph::*)(const onnx::NodeProto &);
    Follow translate = llvm::StringSwitch<Follow>(domainOf(node).empty() ? node.op_type() : "")
                           .Cases("RandomNormal", "RandomUniform", &InitializationGraph::random)
                           .Cases("RandomNormalLike", "RandomUniformLike", &InitializationGraph::random)
                           .Case("ConstantOfShape", &InitializationGraph::constantOfShape)
                           .Case("Constant", &InitializationGraph::constant)
                           .Case("Identity", &InitializationGraph::identity)
                           .Default(nullptr);
    if (translate && node.output_size() == 1)
      return (this->*translate)(node);
    setFault(node, "initial values cannot be computed by this op; RandomNormal, RandomUniform, both Like, Constant, "
                   "ConstantOfShape and Identity are understood");
    return llvm::Error::success();
  }

  llvm::Error random(const onnx::NodeProto &node) {
    std::optional<Shape> shape;
    if (llvm::StringRef(node.op_type()).ends_with("Like")) {
      if (const StatedStart *like = input(node))
        shape = like->shape;
    } else if (const onnx::AttributeProto *attribute = attributeOf(node, "shape")) {
      shape = Shape(attribute->ints().begin(), attribute->ints().end());
    }
    if (!shape)
      setFault(node, "its shape is not known");
    else if (llvm::StringRef(node.op_type()).starts_with("RandomNormal"))
      setDrawn(node, *shape, InitialKind::normal, real(node, "mean", 0), real(node, "scale", 1));
    else
      setDrawn(node, *shape, InitialKind::uniform, real(node, "low", 0), real(node, "high", 1));
    return llvm::Error::success();
  }

  llvm::Error constantOfShape(const onnx::NodeProto &node) {
    const StatedStart *dims = input(node);
    if (!dims || dims->drawn || dims->values.data_type() != onnx::TensorProto::INT64) {
      setFault(node, "its shape is not known");
      return llvm::Error::success();
    }
    llvm::Expected<Dense> shape = readDense(model, dims->values);
    if (!shape)
      return shape.takeError();
    double value = 0;
    if (const onnx::AttributeProto *attribute = attributeOf(node, "value")) {
      llvm::Error error = checkTensor(model, attribute->t());
      if (error || elementsOf(attribute->t()) != 1) {
        setFault(node, "its value is not one number" + (error ? ": " + llvm::toString(std::move(error)) : ""));
        return llvm::Error::success();
      }
      llvm::Expected<Dense> number = readDense(model, attribute->t());
      if (!number)
        return number.takeError();
      value = number->at(0);
    }
    Shape sizes;
    for (int64_t i = 0; i < elementsOf(dims->values); ++i)
      sizes.push_back(static_cast<int64_t>(shape->at(i)));
    setDrawn(node, sizes, InitialKind::constant, value, 0);
    return llvm::Error::success();
  }

  llvm::Error constant(const onnx::NodeProto &node) {
    if (const onnx::AttributeProto *attribute = attributeOf(node, "value")) {
      setValues(node.output(0), attribute->t());
      return llvm::Error::success();
    }
    onnx::TensorProto tensor;
    tensor.set_name(node.output(0));
    if (const onnx::AttributeProto *list = attributeOf(node, "value_floats")) {
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.add_dims(list->floats_size());
      *tensor.mutable_float_data() = list->floats();
    } else if (const onnx::AttributeProto *ints = attributeOf(node, "value_ints")) {
      tensor.set_data_type(onnx::TensorProto::INT64);
      tensor.add_dims(ints->ints_size());
      *tensor.mutable_int64_data() = ints->ints();
    } else if (const onnx::AttributeProto *number = attributeOf(node, "value_float")) {
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.add_float_data(number->f());
    } else {
      setFault(node, "its value is none that a parameter could have");
      return llvm::Error::success();
    }
    setValues(node.output(0), tensor);
    return llvm::Error::success();
  }

  llvm::Error identity(const onnx::NodeProto &node) {
    auto found = starts.find(node.input_size() > 0 ? node.input(0) : "");
    if (found == starts.end()) {
      setFault(node, "nothing computes its input");
      return llvm::Error::success();
    }
    StatedStart same = found->second;
    starts[node.output(0)] = std::move(same);
    return llvm::Error::success();
  }

  const OnnxModel &model;
  const onnx::GraphProto &graph;
  llvm::StringMap<StatedStart> starts;
};

llvm::Error startError(const Repair &repair, const Parameter &parameter, const llvm::Twine &why) {
  return llvm::createStringError(llvm::Twine(statedOrigin) + " of '" + parameter.initializer + "': " + why +
                                 (repair.options.init == Init::defaults ? " (--init file or random start without)"
                                                                        : " (--init random starts without)"));
}

llvm::Error takeStated(const Repair &repair, const StatedStart &stated, Parameter &parameter,
                       onnx::TensorProto &tensor) {
  if (!stated.fault.empty())
    return startError(repair, parameter, stated.fault);
  bool isOtherType = !stated.drawn && stated.values.data_type() != tensor.data_type();
  if (stated.shape != shapeOf(tensor) || isOtherType)
    return startError(
        repair, parameter,
        "it is " + toString(parameter.type) + " in the graph, and [" +
            llvm::join(llvm::map_range(stated.shape, [](int64_t dim) { return std::to_string(dim); }), ",") + "]" +
            (isOtherType ? " of another type" : "") + " there");
  parameter.hasValue = !stated.drawn;
  parameter.initial = stated.drawn;
  if (!stated.drawn)
    copyValues(stated.values, tensor);
  return llvm::Error::success();
}

} // namespace

llvm::Error readTrainingInfo(OnnxModel &model) {
  for (const onnx::TrainingInfoProto &info : model.proto.training_info()) {
    llvm::Expected<llvm::StringMap<StatedStart>> starts = InitializationGraph(model, info.initialization()).run();
    if (!starts)
      return starts.takeError();
    for (const onnx::StringStringEntryProto &binding : info.initialization_binding()) {
      auto found = starts->find(binding.value());
      if (found != starts->end())
        model.statedStarts[binding.key()] = found->second;
      else
        model.statedStarts[binding.key()].fault = "nothing computes '" + binding.value() + "', which it is bound to";
    }
  }
  return llvm::Error::success();
}

llvm::Error chooseInitialValues(const Repair &repair, llvm::MutableArrayRef<Parameter> parameters) {
  const Init init = repair.options.init;
  llvm::StringMap<onnx::TensorProto *> tensors;
  for (onnx::TensorProto &tensor : *repair.model.graph().mutable_initializer())
    tensors[tensor.name()] = &tensor;
  int64_t absent = 0;
  for (Parameter &parameter : parameters) {
    absent += !parameter.hasValue;
    if (init == Init::defaults || init == Init::random)
      parameter.hasValue = false;
    if (parameter.hasValue || init == Init::random)
      continue;
    auto stated = repair.model.statedStarts.find(parameter.initializer);
    if (stated != repair.model.statedStarts.end())
      if (llvm::Error error = takeStated(repair, stated->second, parameter, *tensors.lookup(parameter.initializer)))
        return error;
  }
  if (absent > 0 && init == Init::file)
    repair.remarks.push_back(std::to_string(absent) + " of " + std::to_string(parameters.size()) +
                             " parameters have no values in the file: they start by its training info or by rules");
  return llvm::Error::success();
}

} // namespace fsdpc
