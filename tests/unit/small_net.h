// A graph-stage module for pass tests: three units, a tied weight, a frozen bias, odd sizes, dropout on request.
#pragma once

#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"

#include <map>
#include <random>

namespace fsdpc {

struct SmallNet {
  static constexpr int64_t inputs = 5, hidden = 7, classes = 3;

  /// h1 = relu(x w1 + b1), h2 = gelu(h1 w2 + b2), logits = h2 w3 + h1 w3. w3 belongs to the second unit and is read by
  /// two units.
  static std::unique_ptr<Module> make(int64_t batch) {
    auto module = std::make_unique<Module>();
    addParameter(*module, "first.weight", {inputs, hidden}, "first");
    addParameter(*module, "first.bias", {hidden}, "first");
    addParameter(*module, "second.weight", {hidden, hidden}, "second");
    addParameter(*module, "second.bias", {hidden}, "second").trainable = false;
    addParameter(*module, "head.weight", {hidden, classes}, "second");
    for (llvm::StringRef unit : {"first", "second", "third"})
      module->addUnit({unit.str(), "test"});
    Function &forward = *module->addFunction(FunctionKind::forward);
    Value *x = forward.addArgument(ArgumentKind::input, "x", Type(DType::f32, {batch, inputs}));
    Builder builder(forward);
    auto read = [&](llvm::StringRef name) { return builder.readState(*module->state(name)); };
    auto linear = [&](Value *in, llvm::StringRef weight, llvm::StringRef bias) {
      Value *product = builder.matmul(in, read(weight));
      return bias.empty() ? product : builder.add(product, builder.broadcast(read(bias), product->type().shape()));
    };
    builder.setSection({0, Phase::forward});
    Value *h1 = builder.unary(Op::relu, linear(x, "first.weight", "first.bias"));
    builder.setSection({1, Phase::forward});
    Value *h2 = builder.unary(Op::gelu, linear(h1, "second.weight", "second.bias"));
    Value *side = linear(h1, "head.weight", "");
    builder.setSection({2, Phase::forward});
    Value *logits = builder.add(linear(h2, "head.weight", ""), side);
    logits->setName("logits");
    builder.setSection({});
    builder.ret({logits}, {"logits"});
    return module;
  }

private:
  static Parameter &addParameter(Module &module, llvm::StringRef name, Shape shape, llvm::StringRef unit) {
    Parameter parameter;
    parameter.name = parameter.initializer = name.str();
    parameter.type = Type(DType::f32, shape);
    parameter.unit = unit.str();
    module.parameters.push_back(parameter);
    State state;
    state.name = name.str();
    state.type = parameter.type;
    module.addState(std::move(state));
    return module.parameters.back();
  }
};

/// Normal values of standard deviation 0.5 by name, the same for every module with the same parameters.
inline std::map<std::string, HostTensor> randomParameters(const Module &module) {
  std::mt19937 generator(7);
  std::normal_distribution<double> normal(0, 0.5);
  std::map<std::string, HostTensor> tensors;
  for (const Parameter &parameter : module.parameters) {
    HostTensor tensor(parameter.type);
    for (double &value : tensor.values)
      value = normal(generator);
    tensors[parameter.name] = std::move(tensor);
  }
  return tensors;
}

} // namespace fsdpc
