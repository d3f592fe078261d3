// A graph under construction and the passes to run on it, for tests.
#pragma once

#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "tests/compare/compare.h"
#include "tests/unit/plain_target.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace fsdpc {

class Graph {
public:
  Graph() : function(*module.addFunction(FunctionKind::forward)), b(function) {}

  Value *input(const std::string &name, Shape shape, DType dtype = DType::f32) {
    return function.addArgument(ArgumentKind::input, name, Type(dtype, shape));
  }
  Value *parameter(const std::string &name, Shape shape, bool trainable = true) {
    Parameter parameter;
    parameter.name = parameter.initializer = name;
    parameter.type = Type(DType::f32, shape);
    parameter.trainable = trainable;
    module.parameters.push_back(parameter);
    State state;
    state.name = name;
    state.type = parameter.type;
    return b.readState(module.addState(std::move(state)));
  }
  Value *number(Value *like, double value) { return b.constantLike(like, value); }
  Value *mean(Value *x, bool divides) {
    double count = static_cast<double>(x->type().dim(-1));
    Value *sum = b.reduceSum(x, {x->type().rank() - 1}, true);
    return divides ? b.div(sum, number(sum, count)) : b.mul(sum, number(sum, 1 / count));
  }
  void result(Value *value) { b.ret({value}, {"y"}); }

  /// Runs the passes. The result must not change.
  void run(std::initializer_list<const Pass *> passes) {
    HostTensor before = value();
    runBlindly(passes);
    HostTensor after = value();
    ASSERT_EQ(before.values.size(), after.values.size());
    ASSERT_FALSE(before.values.empty());
    for (size_t i = 0; i < before.values.size(); ++i) {
      const double size = std::isfinite(before.values[i]) ? std::abs(before.values[i]) : 0;
      ASSERT_LE(errorOf(after.values[i], before.values[i]), 2e-4 + 1e-4 * size) << toText(module);
    }
  }
  /// Runs the passes on a graph that would take too long or too much memory to evaluate.
  void runBlindly(std::initializer_list<const Pass *> passes, const PipelineOptions &options = {}) {
    for (const Pass *pass : passes) {
      PlainTarget target;
      PassContext context{options, target, remarks};
      ASSERT_FALSE(pass->run(module, context)) << pass->name.str();
      llvm::Error error = verify(module);
      ASSERT_FALSE(static_cast<bool>(error))
          << pass->name.str() << ": " << llvm::toString(std::move(error)) << toText(module);
    }
  }
  void recognize() {
    run({&foldConstants, &canonicalize, &eliminateCommon, &recognizePatterns, &canonicalize, &eliminateDead});
  }

  int count(Op op) const {
    int count = 0;
    for (Node *node : function)
      count += node->op() == op;
    return count;
  }
  Node *only(Op op) const {
    Node *found = nullptr;
    for (Node *node : function)
      if (node->op() == op) {
        EXPECT_FALSE(found) << "two of " << infoOf(op).name.str();
        found = node;
      }
    EXPECT_TRUE(found) << "no " << infoOf(op).name.str() << "\n" << toText(module);
    return found;
  }

  HostTensor value() {
    std::mt19937 generator(3);
    std::normal_distribution<double> normal;
    auto random = [&](const Type &type) {
      HostTensor tensor(type);
      for (double &element : tensor.values)
        element = type.dtype() == DType::boolean ? generator() % 4 != 0
                  : isInteger(type.dtype())      ? static_cast<double>(generator() % 3)
                                                 : normal(generator);
      return tensor;
    };
    std::map<std::string, HostTensor> inputs, parameters;
    for (const Argument &argument : function.arguments())
      inputs[argument.name] = random(argument.value->type());
    for (const Parameter &parameter : module.parameters)
      parameters[parameter.name] = random(parameter.type);
    EvaluationState state = makeEvaluationState(module, parameters);
    auto results = evaluate(module, {FunctionKind::forward}, {inputs}, state);
    if (!results) {
      ADD_FAILURE() << llvm::toString(results.takeError());
      return {};
    }
    return (*results)[0]["y"];
  }

  Module module;
  Function &function;
  Builder b;
  std::vector<std::string> remarks;
};

} // namespace fsdpc
