// Optimizers: the first step by hand, and several steps against the documented update rules, which are reimplemented
// here.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"
#include <cmath>

namespace fsdpc {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<double>;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }
const Type number(DType::f64, {});
const Type stepType(DType::i64, {});

/// One optimizer node on tensors of `shape`.
struct Optimizer {
  Op op;
  OptimizerAttributes attributes;
  Numbers scalars;
  bool takesStep = false;
  Shape shape = {2};
  double averageDecay = 0; ///< with attribute averages

  /// `tensors`: p, g, then the states. Results: p', then the states.
  std::vector<Numbers> operator()(const std::vector<Numbers> &tensors, double step) const {
    std::vector<HostTensor> inputs;
    for (const Numbers &values : tensors)
      inputs.push_back(tensorOf(f32(shape), values));
    for (double scalar : scalars)
      inputs.push_back(tensorOf(number, {scalar}));
    if (takesStep)
      inputs.push_back(tensorOf(stepType, {step}));
    if (attributes.averages) {
      inputs.push_back(tensorOf(number, {averageDecay}));
      inputs.push_back(tensorOf(stepType, {step}));
    }
    std::vector<Numbers> results;
    for (const HostTensor &result : valuesOf(inputs, build()))
      results.push_back(result.values);
    return results;
  }

private:
  BuildFunction build() const {
    return [this](Builder &builder, llvm::ArrayRef<Value *> inputs) {
      Node *node = builder.create(op, inputs, attributes);
      llvm::SmallVector<Value *, 4> results;
      for (unsigned i = 0; i < node->resultCount(); ++i)
        results.push_back(node->result(i));
      return results;
    };
  }
};

void expectNear(const Numbers &values, const Numbers &expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], 1e-12) << "element " << i;
}

/// The gradient of element `element` in step `step`, without structure and of both signs.
double gradientAt(int64_t step, size_t element) { return std::sin(static_cast<double>(step * 7 + 3 * element)) + 0.3; }

/// Four steps from p = (1, -2): results of the op against `rule(element, step, p, g) -> p'`, which keeps its own state.
template <class Rule>
void expectFourSteps(const Optimizer &optimizer, size_t states, Rule rule) {
  std::vector<Numbers> tensors(2 + states, Numbers(2, 0));
  tensors[0] = {1, -2};
  for (int64_t step = 1; step <= 4; ++step) {
    Numbers expected(2);
    for (size_t i = 0; i < 2; ++i) {
      tensors[1][i] = gradientAt(step, i);
      expected[i] = rule(i, static_cast<double>(step), tensors[0][i], tensors[1][i]);
    }
    std::vector<Numbers> results = optimizer(tensors, static_cast<double>(step));
    ASSERT_EQ(results.size(), 1 + states);
    expectNear(results[0], expected);
    tensors[0] = results[0];
    for (size_t state = 0; state < states; ++state)
      tensors[2 + state] = results[1 + state];
  }
}

OP_TEST(sgd, WithoutMomentumFollowsTheDecayedGradient) {
  expectNear(Optimizer{Op::sgd, {}, {0.1, 0}}({{1, 2}, {0.5, -1}}, 1)[0], {0.95, 2.1});
  expectNear(Optimizer{Op::sgd, {}, {0.1, 0.5}}({{1, 2}, {0.5, -1}}, 1)[0], {0.9, 2});
}

OP_TEST(sgd, FillsTheMomentumBufferUndampedInTheFirstStepOnly) {
  Optimizer sgd{Op::sgd, {.momentum = true}, {0.1, 0, 0.9, 0.5}, true};
  std::vector<Numbers> first = sgd({{1, 1}, {0.5, 0.5}, {7, 0}}, 1); // what the buffer holds before does not matter
  expectNear(first[0], {0.95, 0.95});
  expectNear(first[1], {0.5, 0.5});
  std::vector<Numbers> second = sgd({first[0], {0.5, 0.5}, first[1]}, 2);
  expectNear(second[1], {0.7, 0.7});
  expectNear(second[0], {0.88, 0.88});
}

OP_TEST(sgd, LooksAheadWithNesterov) {
  Optimizer sgd{Op::sgd, {.momentum = true, .nesterov = true}, {0.1, 0, 0.9, 0}, true};
  expectNear(sgd({{1, 1}, {0.5, 0.5}, {0, 0}}, 1)[0], {0.905, 0.905});
}

OP_TEST(sgd, FollowsItsRuleForSeveralSteps) {
  for (bool nesterov : {false, true}) {
    const double lr = 0.2, decay = 0.05, momentum = 0.8, dampening = 0.3;
    Numbers velocity(2, 0);
    expectFourSteps({Op::sgd, {.momentum = true, .nesterov = nesterov}, {lr, decay, momentum, dampening}, true}, 1,
                    [&](size_t i, double step, double p, double g) {
                      g += decay * p;
                      velocity[i] = step > 1 ? momentum * velocity[i] + (1 - dampening) * g : g;
                      return nesterov ? p - lr * g - lr * momentum * velocity[i] : p - lr * velocity[i];
                    });
  }
}

OP_TEST(adam, MovesByTheLearningRateInTheFirstStep) {
  Optimizer adam{Op::adam, {}, {0.01, 0.9, 0.999, 0, 0}, true};
  std::vector<Numbers> results = adam({{1, 1}, {0.5, -3}, {0, 0}, {0, 0}}, 1);
  expectNear(results[0], {0.99, 1.01});
  expectNear(results[1], {0.05, -0.3});
  expectNear(results[2], {0.00025, 0.009});
}

OP_TEST(adam, DecaysTheParameterItselfWhenDecoupled) {
  Optimizer adam{Op::adam, {.decoupled = true}, {0.01, 0.9, 0.999, 0, 0.5}, true};
  expectNear(adam({{1, 1}, {0.5, -3}, {0, 0}, {0, 0}}, 1)[0], {0.995 - 0.01, 0.995 + 0.01});
  // Coupled, the decay is part of the gradient, and only its sign counts in the first step.
  adam.attributes.decoupled = false;
  expectNear(adam({{1, 10}, {0.5, -3}, {0, 0}, {0, 0}}, 1)[0], {0.99, 9.99});
}

OP_TEST(adam, FollowsItsBiasCorrectedRuleForSeveralSteps) {
  for (bool decoupled : {false, true}) {
    const double lr = 0.1, beta1 = 0.8, beta2 = 0.95, epsilon = 0.01, decay = 0.1;
    Numbers m(2, 0), v(2, 0);
    expectFourSteps({Op::adam, {.decoupled = decoupled}, {lr, beta1, beta2, epsilon, decay}, true}, 2,
                    [&](size_t i, double step, double p, double g) {
                      if (!decoupled)
                        g += decay * p;
                      m[i] += (1 - beta1) * (g - m[i]);
                      v[i] += (1 - beta2) * (g * g - v[i]);
                      double mHat = m[i] / (1 - std::pow(beta1, step)), vHat = v[i] / (1 - std::pow(beta2, step));
                      return p - lr * (decoupled ? decay * p : 0) - lr * mHat / (std::sqrt(vHat) + epsilon);
                    });
  }
}

OP_TEST(adadelta, TakesItsFirstStepFromEpsilon) {
  // s = 0.1 * 25 = 2.5, delta = sqrt(1.5 / 4) * 5, a = 0.1 * delta^2.
  std::vector<Numbers> results = Optimizer{Op::adadelta, {}, {2, 0.9, 1.5, 0}}({{1, 1}, {5, -5}, {0, 0}, {0, 0}}, 1);
  double delta = std::sqrt(0.375) * 5;
  expectNear(results[0], {1 - 2 * delta, 1 + 2 * delta});
  expectNear(results[1], {2.5, 2.5});
  expectNear(results[2], {0.1 * delta * delta, 0.1 * delta * delta});
}

OP_TEST(adadelta, FollowsItsRuleForSeveralSteps) {
  const double lr = 0.7, rho = 0.85, epsilon = 0.02, decay = 0.1;
  Numbers squares(2, 0), deltas(2, 0);
  expectFourSteps({Op::adadelta, {}, {lr, rho, epsilon, decay}}, 2, [&](size_t i, double, double p, double g) {
    g += decay * p;
    squares[i] += (1 - rho) * (g * g - squares[i]);
    double delta = g * std::sqrt((deltas[i] + epsilon) / (squares[i] + epsilon));
    deltas[i] += (1 - rho) * (delta * delta - deltas[i]);
    return p - lr * delta;
  });
}

OP_TEST(adagrad, DividesByTheRootOfTheSumOfSquares) {
  std::vector<Numbers> results = Optimizer{Op::adagrad, {}, {0.1, 5, 0, 0}, true}({{1, 1}, {3, -4}, {16, 9}}, 1);
  expectNear(results[0], {1 - 0.06, 1 + 0.08});
  expectNear(results[1], {25, 25});
}

OP_TEST(adagrad, FollowsItsRuleForSeveralSteps) {
  const double lr = 0.3, lrDecay = 0.5, epsilon = 0.01, decay = 0.1;
  Numbers sums(2, 0);
  expectFourSteps({Op::adagrad, {}, {lr, lrDecay, epsilon, decay}, true}, 1,
                  [&](size_t i, double step, double p, double g) {
                    g += decay * p;
                    sums[i] += g * g;
                    return p - lr / (1 + lrDecay * (step - 1)) * g / (std::sqrt(sums[i]) + epsilon);
                  });
}

OP_TEST(lion, StepsBySignsAlone) {
  std::vector<Numbers> results = Optimizer{Op::lion, {}, {0.1, 0.5, 0.75, 0}}({{1, 1}, {8, 0}, {-4, 0}}, 1);
  expectNear(results[0], {1 - 0.1, 1}); // of 0.5 * -4 + 0.5 * 8, and of 0
  expectNear(results[1], {0.75 * -4 + 0.25 * 8, 0});
}

OP_TEST(lion, FollowsItsRuleForSeveralSteps) {
  const double lr = 0.02, beta1 = 0.8, beta2 = 0.95, decay = 0.3;
  Numbers averages(2, 0);
  expectFourSteps({Op::lion, {}, {lr, beta1, beta2, decay}}, 1, [&](size_t i, double, double p, double g) {
    const double direction = averages[i] + (1 - beta1) * (g - averages[i]);
    averages[i] += (1 - beta2) * (g - averages[i]);
    return p - lr * decay * p - std::copysign(lr, direction);
  });
}

OP_TEST(rmsprop, DividesByTheRootOfTheAverageSquare) {
  std::vector<Numbers> results = Optimizer{Op::rmsprop, {}, {0.1, 0.75, 0.5, 0}}({{1, 1}, {3, -4}, {0, 0}}, 1);
  expectNear(results[0], {1 - 0.3 / 2, 1 + 0.4 / 2.5});
  expectNear(results[1], {2.25, 4});
}

OP_TEST(rmsprop, FollowsItsRuleInAllFourFormsForSeveralSteps) {
  for (bool useMomentum : {false, true})
    for (bool centered : {false, true}) {
      const double lr = 0.05, alpha = 0.9, epsilon = 0.1, decay = 0.1, momentum = 0.6;
      Optimizer optimizer{Op::rmsprop, {.momentum = useMomentum, .centered = centered}, {lr, alpha, epsilon, decay}};
      if (useMomentum)
        optimizer.scalars.push_back(momentum);
      Numbers squares(2, 0), means(2, 0), buffers(2, 0);
      expectFourSteps(optimizer, 1 + useMomentum + centered, [&](size_t i, double, double p, double g) {
        g += decay * p;
        squares[i] += (1 - alpha) * (g * g - squares[i]);
        means[i] += (1 - alpha) * (g - means[i]);
        double deviation = std::sqrt(squares[i] - (centered ? means[i] * means[i] : 0));
        buffers[i] = (useMomentum ? momentum * buffers[i] : 0) + g / (deviation + epsilon);
        return p - lr * buffers[i];
      });
    }
}

OP_TEST(adam, WorksOnAnyShapeAndOnNothing) {
  Optimizer adam{Op::adam, {}, {0.01, 0.9, 0.999, 0, 0}, true, {2, 1, 2}};
  expectNear(adam({{1, 1, 2, 2}, {1, -1, 1, -1}, Numbers(4), Numbers(4)}, 1)[0], {0.99, 1.01, 1.99, 2.01});
  adam.shape = {0};
  EXPECT_TRUE(adam({{}, {}, {}, {}}, 1)[0].empty());
}

TEST(AveragingOptimizers, StartAtTheFirstNewParameterAndThenFollow) {
  Optimizer sgd{Op::sgd, {.averages = true}, {0.5, 0}};
  sgd.averageDecay = 0.75;
  const std::vector<Numbers> first = sgd({{1, 2}, {1, -1}, {77, 77}}, 1); // what the average is before does not matter
  expectNear(first[0], {0.5, 2.5});
  expectNear(first[1], first[0]);
  const std::vector<Numbers> second = sgd({first[0], {1, -1}, first[1]}, 2);
  expectNear(second[0], {0, 3});
  expectNear(second[1], {0.375, 2.625});
}

TEST(AveragingOptimizers, ChangeNoOtherResult) {
  const Numbers scalars = {0.125, 0.9, 0.99, 0.25, 0.5};
  Optimizer plain{Op::adam, {.decoupled = true}, scalars, true}, averaging = plain;
  averaging.attributes.averages = true;
  averaging.averageDecay = 0.5;
  const std::vector<Numbers> tensors = {{1, -2}, {0.5, 3}, {0.25, 0}, {1, 2}};
  std::vector<Numbers> withAverage = tensors;
  withAverage.push_back({4, 8});
  const std::vector<Numbers> expected = plain(tensors, 3);
  std::vector<Numbers> results = averaging(withAverage, 3);
  ASSERT_EQ(results.size(), 4u);
  expectNear(results.back(), {(4 + expected[0][0]) / 2, (8 + expected[0][1]) / 2});
  results.pop_back();
  EXPECT_EQ(results, expected);
}

/// The results of step 2 of an optimizer with fixed operands, guarded or not.
std::vector<Numbers> guardedStep(Op op, OptimizerAttributes attributes, size_t states, size_t scalars, bool takesStep,
                                 double gradient, std::optional<std::pair<double, bool>> guard) {
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < 2 + states; ++i)
    inputs.push_back(tensorOf(f32({2}), i == 1 ? Numbers{gradient, -gradient} : Numbers{0.5, 0.75}));
  for (size_t i = 0; i < scalars; ++i)
    inputs.push_back(tensorOf(number, {0.25}));
  if (takesStep)
    inputs.push_back(tensorOf(stepType, {2}));
  if (attributes.averages) {
    inputs.push_back(tensorOf(number, {0.25}));
    inputs.push_back(tensorOf(stepType, {2}));
  }
  attributes.guarded = guard.has_value();
  if (guard) {
    inputs.push_back(tensorOf(f32({}), {guard->first}));
    inputs.push_back(tensorOf(Type(DType::boolean, {}), {double(guard->second)}));
  }
  std::vector<Numbers> results;
  for (const HostTensor &result : valuesOf(inputs, [&](Builder &builder, llvm::ArrayRef<Value *> operands) {
         Node *node = builder.create(op, operands, attributes);
         llvm::SmallVector<Value *, 4> all;
         for (unsigned i = 0; i < node->resultCount(); ++i)
           all.push_back(node->result(i));
         return all;
       }))
    results.push_back(result.values);
  return results;
}

TEST(GuardedOptimizers, ScaleTheGradientOrLeaveEverythingAsItWas) {
  const double nan = std::nan("");
  auto check = [&](Op op, OptimizerAttributes attributes, size_t states, size_t scalars, bool takesStep) {
    SCOPED_TRACE(infoOf(op).name.str());
    EXPECT_EQ(guardedStep(op, attributes, states, scalars, takesStep, 8, std::pair(0.125, true)),
              guardedStep(op, attributes, states, scalars, takesStep, 1, std::nullopt));
    for (const Numbers &kept : guardedStep(op, attributes, states, scalars, takesStep, nan, std::pair(nan, false)))
      EXPECT_EQ(kept, (Numbers{0.5, 0.75}));
  };
  check(Op::sgd, {}, 0, 2, false);
  check(Op::sgd, {.momentum = true}, 1, 4, true);
  check(Op::adam, {.decoupled = true}, 2, 5, true);
  check(Op::adadelta, {}, 2, 4, false);
  check(Op::adagrad, {}, 1, 4, true);
  check(Op::rmsprop, {.momentum = true, .centered = true}, 3, 5, false);
  check(Op::lion, {}, 1, 4, false);
  check(Op::sgd, {.averages = true}, 1, 2, false);
  check(Op::adam, {.averages = true}, 3, 5, true);
}

/// The operand types of an optimizer.
std::vector<Type> operandTypes(size_t tensors, size_t numbers, bool takesStep) {
  std::vector<Type> types(tensors, f32({3}));
  types.insert(types.end(), numbers, number);
  if (takesStep)
    types.push_back(stepType);
  return types;
}

/// Accepts `good` and refuses it with one operand too few, another shape, another dtype, an f32 number and foreign
/// attributes.
void expectConstraints(Op op, OptimizerAttributes attributes, std::vector<Type> good, size_t tensors) {
  if (attributes.guarded)
    good.insert(good.end(), {f32({}), Type(DType::boolean, {})});
  EXPECT_EQ(inferMessage(op, good, attributes), "");
  std::vector<Type> broken = good;
  broken.pop_back();
  EXPECT_THAT(inferMessage(op, broken, attributes), testing::AnyOf(HasSubstr("(C0)"), HasSubstr("(C1)")));
  for (size_t i = 0; i < tensors; ++i) {
    broken = good;
    broken[i] = f32({4});
    EXPECT_THAT(inferMessage(op, broken, attributes), HasSubstr("(C2)")) << "operand " << i;
  }
  // A gradient may have been summed in 16 bits, nothing else may.
  broken = good;
  broken[1] = Type(DType::bf16, {3});
  EXPECT_EQ(inferMessage(op, broken, attributes), "");
  broken[0] = Type(DType::f16, {3});
  EXPECT_THAT(inferMessage(op, broken, attributes), HasSubstr("(C2)"));
  broken = good;
  std::fill_n(broken.begin(), tensors, Type(DType::i64, {3}));
  EXPECT_THAT(inferMessage(op, broken, attributes), HasSubstr("(C2)"));
  for (size_t i = tensors; i < good.size(); ++i) {
    broken = good;
    broken[i] = f32({1});
    EXPECT_THAT(inferMessage(op, broken, attributes), HasSubstr("(C3)")) << "operand " << i;
  }
}

TEST(OptimizerConstraints, OfOperandsAreReportedByLabel) {
  expectConstraints(Op::sgd, {}, operandTypes(2, 2, false), 2);
  expectConstraints(Op::sgd, {.momentum = true}, operandTypes(3, 4, true), 3);
  expectConstraints(Op::adam, {}, operandTypes(4, 5, true), 4);
  expectConstraints(Op::adam, {.decoupled = true}, operandTypes(4, 5, true), 4);
  expectConstraints(Op::adadelta, {}, operandTypes(4, 4, false), 4);
  expectConstraints(Op::adagrad, {}, operandTypes(3, 4, true), 3);
  expectConstraints(Op::lion, {}, operandTypes(3, 4, false), 3);
  expectConstraints(Op::adam, {.guarded = true}, operandTypes(4, 5, true), 4);
  expectConstraints(Op::sgd, {.guarded = true}, operandTypes(2, 2, false), 2);
  std::vector<Type> averaging = operandTypes(5, 6, true); // the step stands before the decay
  std::swap(averaging[10], averaging[11]);
  averaging.push_back(stepType);
  expectConstraints(Op::adam, {.averages = true}, averaging, 5);
  expectConstraints(Op::sgd, {.averages = true, .guarded = true}, operandTypes(3, 3, true), 3);
  expectConstraints(Op::rmsprop, {}, operandTypes(3, 4, false), 3);
  expectConstraints(Op::rmsprop, {.momentum = true}, operandTypes(4, 5, false), 4);
  expectConstraints(Op::rmsprop, {.centered = true}, operandTypes(4, 4, false), 4);
  expectConstraints(Op::rmsprop, {.momentum = true, .centered = true}, operandTypes(5, 5, false), 5);
}

TEST(OptimizerConstraints, OfAttributesAreReportedByLabel) {
  EXPECT_THAT(inferMessage(Op::sgd, operandTypes(2, 2, false), OptimizerAttributes{.decoupled = true}),
              HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::adam, operandTypes(4, 5, true), OptimizerAttributes{.momentum = true}),
              HasSubstr("(C4)"));
  EXPECT_THAT(
      inferMessage(Op::rmsprop, operandTypes(4, 5, false), OptimizerAttributes{.momentum = true, .nesterov = true}),
      HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::adagrad, operandTypes(3, 4, true), OptimizerAttributes{.centered = true}),
              HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::sgd, operandTypes(2, 2, false), OptimizerAttributes{.nesterov = true}),
              HasSubstr("(C5)"));
}

} // namespace
} // namespace fsdpc
