// Guards of an update. The norm is exact and does not depend on the order of the sum. Clipping is torch's. The dynamic
// loss scale follows the scalers of torch and DeepSpeed, which are reimplemented here from their documentation
// (tests/scaler has recordings of both).
#include "ir/ops/guard.h"
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"
#include <cmath>
#include <random>

namespace fsdpc {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();
const Type number(DType::f64, {}), count(DType::i64, {}), truth(DType::boolean, {}), loss(DType::f32, {});

HostTensor vector(const Numbers &values) {
  return tensorOf(Type(DType::f32, {static_cast<int64_t>(values.size())}), values);
}

Numbers squareSumOf(const std::vector<Numbers> &tensors) {
  std::vector<HostTensor> inputs;
  for (const Numbers &values : tensors)
    inputs.push_back(vector(values));
  return valuesOf(inputs,
                  [](Builder &builder, llvm::ArrayRef<Value *> operands) -> llvm::SmallVector<Value *, 4> {
                    return {builder.create(Op::squareSum, operands)->result()};
                  })[0]
      .values;
}

struct Clipped {
  double norm, scale;
  bool applies;
};

/// Clips with one accumulator per group of tensors. 0 for `maxNorm` or `lossScale` means none.
Clipped clip(const std::vector<std::vector<Numbers>> &groups, double maxNorm = 0, double lossScale = 0,
             double lossValue = 1) {
  std::vector<HostTensor> inputs;
  for (const std::vector<Numbers> &group : groups)
    inputs.push_back(tensorOf(Type(DType::i64, {squareSumWords}), squareSumOf(group)));
  inputs.push_back(tensorOf(loss, {lossValue}));
  if (maxNorm != 0)
    inputs.push_back(tensorOf(number, {maxNorm}));
  if (lossScale != 0)
    inputs.push_back(tensorOf(number, {lossScale}));
  ClipNormAttributes attributes{maxNorm != 0, lossScale != 0};
  std::vector<HostTensor> results =
      valuesOf(inputs, [&](Builder &builder, llvm::ArrayRef<Value *> operands) -> llvm::SmallVector<Value *, 4> {
        Node *node = builder.create(Op::clipNorm, operands, attributes);
        return {node->result(0), node->result(1), node->result(2)};
      });
  return {results[0].values[0], results[1].values[0], results[2].values[0] != 0};
}

/// Values of both signs over the full range of f32, including the smallest and the largest.
Numbers valuesOfAllMagnitudes(size_t count) {
  std::mt19937_64 random(7);
  Numbers values = {0, -0.0, 0x1p-149, -0x1.fffffep+127};
  while (values.size() < count)
    values.push_back(static_cast<float>(
        std::ldexp(std::uniform_real_distribution(-1.0, 1.0)(random), static_cast<int>(random() % 250) - 122)));
  return values;
}

OP_TEST(squareSum, IsTheSameInAnyOrderAndAnyCut) {
  Numbers values = valuesOfAllMagnitudes(1000), shuffled = values;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(3));
  const Numbers sum = squareSumOf({values});
  EXPECT_EQ(sum, squareSumOf({shuffled}));
  EXPECT_EQ(sum,
            squareSumOf({Numbers(values.begin(), values.begin() + 313), Numbers(values.begin() + 313, values.end())}));
  for (int64_t i = 0; i < squareSumDigits; ++i)
    EXPECT_LT(sum[i], 0x1p32);
}

OP_TEST(squareSum, LosesNothing) {
  // The smaller addend is 2^-298. No float sum would keep it next to the larger one.
  const Numbers sum = squareSumOf({{0x1p-149, 0x1p+127}});
  EXPECT_EQ(sum[0], 1);
  EXPECT_EQ(sum[(2 * 127 + 298) / 32], std::ldexp(1, (2 * 127 + 298) % 32));
  EXPECT_EQ(std::count(sum.begin(), sum.end(), 0), squareSumWords - 2);
}

OP_TEST(squareSum, CountsWhatIsNotFinite) {
  const Numbers sum = squareSumOf({{1, std::nan(""), infinity}, {-infinity, std::nan(""), std::nan("")}});
  EXPECT_EQ(sum[squareSumNaNs], 3);
  EXPECT_EQ(sum[squareSumInfinities], 2);
}

TEST(SquareSumConstraints, TakesF32AndFloatsOf16Bits) {
  for (DType dtype : {DType::f64, DType::i32})
    EXPECT_THAT(inferMessage(Op::squareSum, {Type(DType::f32, {2}), Type(dtype, {2})}), HasSubstr("(C1)"));
  EXPECT_EQ(inferMessage(Op::squareSum, {Type(DType::f16, {2}), Type(DType::bf16, {2})}), "");
  EXPECT_EQ(inferMessage(Op::squareSum, {Type(DType::f32, {2, 3}), Type(DType::f32, {})}), "");
}

OP_TEST(clipNorm, ScalesDownToTheBound) {
  Clipped clipped = clip({{{3}, {4}}}, 2);
  EXPECT_EQ(clipped.norm, 5);
  EXPECT_NEAR(clipped.scale, 2 / (5 + 1e-6), 1e-12);
  EXPECT_TRUE(clipped.applies);
  EXPECT_EQ(clip({{{3, 4}}}, 5.1).scale, 1);
  EXPECT_EQ(clip({{{3, 4}}}).scale, 1);
  EXPECT_EQ(clip({{{0, 0}}}, 1).norm, 0);
}

OP_TEST(clipNorm, TakesGradientsOfSeveralSplitsTogether) { EXPECT_EQ(clip({{{3}}, {{4}, {12}}}, 1).norm, 13); }

OP_TEST(clipNorm, DividesByTheLossScale) {
  Clipped clipped = clip({{{3 * 1024, 4 * 1024}}}, 2, 1024);
  EXPECT_EQ(clipped.norm, 5);
  EXPECT_NEAR(clipped.scale, 2 / (5 + 1e-6) / 1024, 1e-12);
  EXPECT_EQ(clip({{{3, 4}}}, 0, 1024).scale, 1.0 / 1024);
}

OP_TEST(clipNorm, RefusesStepsThatAreNotFinite) {
  EXPECT_TRUE(std::isnan(clip({{{1, std::nan("")}}}, 1).norm));
  EXPECT_TRUE(std::isinf(clip({{{1, infinity}}}, 1).norm));
  EXPECT_FALSE(clip({{{1, std::nan(""), infinity}}}, 1).applies);
  EXPECT_FALSE(clip({{{1, infinity}}}).applies);
  EXPECT_FALSE(clip({{{1}}}, 1, 0, std::nan("")).applies);
  EXPECT_FALSE(clip({{{1}}}, 1, 0, infinity).applies);
  // Two of the largest values are finite, but their norm is not.
  EXPECT_FALSE(clip({{{0x1.fffffep+127, 0x1.fffffep+127}}}, 1).applies);
  EXPECT_EQ(clip({{{infinity}}}, 1).scale, 0);
}

TEST(ClipNormConstraints, WantsItsOperands) {
  const Type sum(DType::i64, {squareSumWords});
  EXPECT_EQ(inferMessage(Op::clipNorm, {sum, sum, loss, number}, ClipNormAttributes{.bounded = true}), "");
  EXPECT_THAT(inferMessage(Op::clipNorm, {loss}, ClipNormAttributes{}), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::clipNorm, {Type(DType::i64, {3}), loss}, ClipNormAttributes{}), HasSubstr("(C2)"));
  EXPECT_THAT(inferMessage(Op::clipNorm, {sum, number}, ClipNormAttributes{}), HasSubstr("(C3)"));
  EXPECT_THAT(inferMessage(Op::clipNorm, {sum, loss, loss}, ClipNormAttributes{.scaled = true}), HasSubstr("(C4)"));
}

OP_TEST(spikeGuard, HoldsBackNormsFarAboveThoseBefore) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal(10, 1);
  double mean = 0, variance = 0, seen = 0;
  auto applies = [&](double norm, bool isFinite, double limit) {
    const Type types[] = {loss, truth, number, number, number, count};
    const double values[] = {norm, double(isFinite), limit, mean, variance, seen};
    std::vector<HostTensor> inputs;
    for (size_t i = 0; i < 6; ++i)
      inputs.push_back(tensorOf(types[i], {values[i]}));
    std::vector<HostTensor> results =
        valuesOf(inputs, [&](Builder &builder, llvm::ArrayRef<Value *> operands) -> llvm::SmallVector<Value *, 4> {
          Node *node = builder.create(Op::spikeGuard, operands);
          return {node->result(0), node->result(1), node->result(2), node->result(3)};
        });
    mean = results[1].values[0], variance = results[2].values[0], seen = results[3].values[0];
    return results[0].values[0] != 0;
  };
  EXPECT_TRUE(applies(7, true, 0));
  EXPECT_EQ(seen, 0);
  EXPECT_FALSE(applies(7, false, 3));
  EXPECT_EQ(seen, 0);
  Numbers norms;
  for (int i = 0; i < 20; ++i) {
    norms.push_back(normal(random));
    EXPECT_TRUE(applies(norms.back(), true, 1e-9)) << "too few to checkOutcome";
  }
  double sum = 0, squares = 0;
  for (double norm : norms)
    sum += norm, squares += norm * norm;
  EXPECT_NEAR(mean, sum / 20, 1e-12);
  EXPECT_NEAR(variance, squares / 20 - mean * mean, 1e-9);
  const double deviation = std::sqrt(variance);
  EXPECT_FALSE(applies(mean + 4.1 * deviation, true, 4));
  EXPECT_EQ(seen, 20);
  EXPECT_TRUE(applies(mean + 3.9 * deviation, true, 4));
  EXPECT_TRUE(applies(0, true, 4)) << "small norms are no spikes";
  EXPECT_EQ(seen, 22);
  EXPECT_THAT(inferMessage(Op::spikeGuard, {number, truth, number, number, number, count}), HasSubstr("(C1)"));
}

// ---- the dynamic loss scale

/// The op, step by step.
class ScaleOfOp {
public:
  ScaleOfOp(double initial, LossScaleAttributes attributes)
      : attributes(attributes), state{initial, static_cast<double>(goodStepsAtFirst(attributes.minimum)),
                                      static_cast<double>(attributes.hysteresis)} {}
  double scale() const { return state[0]; }
  bool isExhausted() const { return exhausted; }
  void step(bool overflows) {
    const Type types[] = {number, count, count, truth};
    std::vector<HostTensor> inputs;
    for (size_t i = 0; i < 4; ++i)
      inputs.push_back(tensorOf(types[i], {i < 3 ? state[i] : !overflows}));
    std::vector<HostTensor> next =
        valuesOf(inputs, [&](Builder &builder, llvm::ArrayRef<Value *> operands) -> llvm::SmallVector<Value *, 4> {
          Node *node = builder.create(Op::adjustLossScale, operands, attributes);
          return {node->result(0), node->result(1), node->result(2), node->result(3)};
        });
    for (size_t i = 0; i < 3; ++i)
      state[i] = next[i].values[0];
    exhausted = next[3].values[0] != 0;
  }

private:
  LossScaleAttributes attributes;
  double state[3];
  bool exhausted = false;
};

/// torch.amp.GradScaler's documentation: backoff at every overflow, growth after growth_interval consecutive steps
/// without. The scale is an f32, and never grows to infinity.
struct TorchScale {
  double scale;
  int64_t interval, consecutive = 0;
  void step(bool overflows) {
    if (overflows) {
      scale *= 0.5;
      consecutive = 0;
    } else if (++consecutive == interval) {
      scale *= std::isinf(static_cast<float>(scale * 2)) ? 1 : 2;
      consecutive = 0;
    }
  }
};

/// DeepSpeed's scaler. Steps are numbered, and the window counts from the step after the last overflow. Hysteresis is
/// the number of overflows up to the first that shrinks the scale. It is restored when the scale grows.
struct DeepSpeedScale {
  double scale, minimum;
  int64_t window, shifts, left = shifts, number = 0, lastOverflow = -1;
  int64_t stable() const { return number - lastOverflow - 1; }
  void step(bool overflows) {
    if (overflows) {
      if (shifts == 1 || left == 1)
        scale = std::max(scale / 2, minimum);
      else
        left -= 1;
      lastOverflow = number;
    } else if (stable() > 0 && stable() % window == 0) {
      left = shifts;
      scale *= 2;
    }
    ++number;
  }
};

/// Overflows are rare, come in bursts, and are absent for a while.
bool overflowsAt(int step, std::mt19937 &random) {
  const int phase = step / 500 % 5;
  const unsigned oneIn[] = {40, 4, 1000000, 15, 300};
  return random() % oneIn[phase] == 0;
}

template <class Model>
void expectSameScales(LossScaleAttributes attributes, Model model) {
  ScaleOfOp op(model.scale, attributes);
  std::mt19937 random(11);
  for (int step = 0; step < 2500; ++step) { // each phase of overflowsAt once
    const bool overflows = overflowsAt(step, random);
    op.step(overflows);
    model.step(overflows);
    ASSERT_EQ(op.scale(), model.scale) << "step " << step;
  }
}

OP_TEST(adjustLossScale, FollowsTorchsGradScaler) {
  for (int64_t interval : {1, 20, 100})
    expectSameScales({.window = interval, .hysteresis = 1, .minimum = 0}, TorchScale{0x1p16, interval});
}

OP_TEST(adjustLossScale, FollowsDeepSpeedsDynamicLossScaler) {
  for (int64_t window : {20, 50, 100})
    for (int64_t hysteresis : {1, 2, 4})
      expectSameScales({.window = window, .hysteresis = hysteresis, .minimum = 1},
                       DeepSpeedScale{0x1p16, 1, window, hysteresis});
}

OP_TEST(adjustLossScale, SaysWhenThereIsNoSmallerScale) {
  ScaleOfOp op(2, {.window = 10, .hysteresis = 2, .minimum = 1});
  const bool expected[] = {false, false, true, true};
  for (bool exhausted : expected) {
    op.step(true);
    EXPECT_EQ(op.isExhausted(), exhausted);
  }
  op.step(false);
  EXPECT_FALSE(op.isExhausted());
  EXPECT_EQ(op.scale(), 1);
}

OP_TEST(adjustLossScale, GrowsNoFurtherThanFloatsDo) {
  ScaleOfOp op(0x1p127, {.window = 1, .hysteresis = 1, .minimum = 0});
  op.step(false);
  EXPECT_EQ(op.scale(), 0x1p127);
}

TEST(AdjustLossScaleConstraints, WantsItsOperands) {
  EXPECT_EQ(inferMessage(Op::adjustLossScale, {number, count, count, truth}, LossScaleAttributes{}), "");
  EXPECT_THAT(inferMessage(Op::adjustLossScale, {number, count, number, truth}, LossScaleAttributes{}),
              HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::adjustLossScale, {number, count, count, truth}, LossScaleAttributes{.window = 0}),
              HasSubstr("(C2)"));
}

} // namespace
} // namespace fsdpc
