// Guards of an update: norms compared with integer sums, clipping, and optimizers that skip an update.
#include "tests/runtime/kernels_support.h"

#include "runtime/common/exact_sum.h"

#include <algorithm>
#include <random>

namespace fsdpc::rt {
namespace {

using Words = std::vector<std::int64_t>;

Words sumOf(const std::vector<std::vector<float>> &parts, int threads = 1) {
  Words sum(exact::words, -1);
  const auto run = [&](std::initializer_list<FloatRange> runs) { squareSum(contextOf(threads), runs, sum.data()); };
  const auto part = [&](std::size_t i) {
    return FloatRange{parts[i].data(), static_cast<std::int64_t>(parts[i].size())};
  };
  if (parts.size() == 1)
    run({part(0)});
  else
    run({part(0), part(1)});
  return sum;
}

exact::Clipped clipped(std::initializer_list<const std::int64_t *> sums, const ClipNumbers &numbers, float loss = 1) {
  std::vector<float> out(3, -1);
  bool *const applies = reinterpret_cast<bool *>(&out[2]);
  clipNorm(contextOf(), numbers, sums, given(loss), &out[0], &out[1], applies);
  return {out[0], out[1], *applies};
}

float normOf(const std::vector<float> &x) {
  const Words sum = sumOf({x});
  return clipped({sum.data()}, {}).norm;
}

/// Floats of all exponents and both signs.
std::vector<float> floatsOfAllSizes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> x(count);
  for (float &value : x)
    value = std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31f,
                       static_cast<int>(random() % 250) - 122);
  return x;
}

TEST(KernelsSquareSum, OrderCutAndThreadsChangeNoBit) {
  std::vector<float> x = floatsOfAllSizes(300001, 1);
  const Words sum = sumOf({x});
  EXPECT_EQ(sum, sumOf({x}, 3));
  EXPECT_EQ(sum, sumOf({{x.begin(), x.begin() + 70003}, {x.begin() + 70003, x.end()}}));
  std::shuffle(x.begin(), x.end(), std::mt19937(2));
  EXPECT_EQ(sum, sumOf({x}));
  for (int i = 0; i < exact::digits; ++i)
    EXPECT_LT(sum[i], std::int64_t{1} << 32);
  // Adds word by word, as ranks do.
  Words first = sumOf({{x.begin(), x.begin() + 1000}}), second = sumOf({{x.begin() + 1000, x.end()}});
  for (int i = 0; i < exact::words; ++i)
    first[i] += second[i];
  const float norm = clipped({sum.data()}, {}).norm;
  EXPECT_EQ(clipped({first.data()}, {}).norm, norm);
  const Words rest = sumOf({{x.begin() + 1000, x.end()}}), head = sumOf({{x.begin(), x.begin() + 1000}});
  EXPECT_EQ(clipped({rest.data(), head.data()}, {}).norm, norm);
}

/// Integers below 2^20: sums of their squares are exact in a long double, and so are the squares of the bounds between
/// which the root rounds to a float.
TEST(KernelsSquareSum, TheNormIsCorrectlyRounded) {
  std::mt19937 random(3);
  for (int exponent : {-160, -149, -140, -60, 0, 40, 100}) {
    for (int i = 0; i < 50; ++i) {
      std::vector<float> x(1 + random() % 40);
      long double sum = 0;
      for (float &value : x) {
        const long double integer = random() % (1 << (1 + random() % 20));
        value = static_cast<float>(std::ldexp(integer, exponent));
        sum += static_cast<long double>(value) * value;
      }
      const float norm = normOf(x);
      const long double below = (static_cast<long double>(norm) + std::nextafter(norm, 0.0f)) / 2;
      const long double above = (static_cast<long double>(norm) + std::nextafter(norm, INFINITY)) / 2;
      ASSERT_LE(below * below, sum) << exponent;
      ASSERT_GE(above * above, sum) << exponent;
    }
  }
}

TEST(KernelsSquareSum, LargeAndSmallEndsOfTheRange) {
  EXPECT_EQ(normOf({0x1p-149f}), 0x1p-149f);
  EXPECT_EQ(normOf({-0x1.fffffep+127f}), 0x1.fffffep+127f);
  EXPECT_EQ(normOf({0x1.fffffep+127f, 0x1.fffffep+127f}), INFINITY);
  EXPECT_EQ(normOf({}), 0);
  EXPECT_EQ(normOf({0, -0.0f}), 0);
  // More values of one exponent than the capacity of a bin.
  EXPECT_EQ(normOf(std::vector<float>(1 << 20, 0x1.fffffep+0f)), 1024 * 0x1.fffffep+0f);
}

TEST(KernelsSquareSum, NaNsAndInfinitiesAreCounted) {
  std::vector<float> x = floatsOfAllSizes(3000, 4);
  x[10] = NAN, x[999] = -INFINITY, x[2999] = INFINITY;
  const Words sum = sumOf({x});
  EXPECT_EQ(sum[exact::nanWord], 1);
  EXPECT_EQ(sum[exact::infinityWord], 2);
  EXPECT_TRUE(std::isnan(clipped({sum.data()}, {}).norm));
  EXPECT_FALSE(clipped({sum.data()}, {}).applies);
}

TEST(KernelsClipNorm, ScalesAsTorchDoes) {
  const Words sum = sumOf({{3, 4}});
  const auto at = [&](double maxNorm) { return clipped({sum.data()}, {given(maxNorm), nullptr}); };
  EXPECT_EQ(at(2).norm, 5);
  EXPECT_EQ(at(2).scale, 1 / (5 + 1e-6f) * 2);
  EXPECT_EQ(at(6).scale, 1);
  EXPECT_EQ(clipped({sum.data()}, {nullptr, given(1024.0)}).norm, 5.0f / 1024);
  EXPECT_EQ(clipped({sum.data()}, {nullptr, given(1024.0)}).scale, 1.0f / 1024);
  EXPECT_FALSE(clipped({sum.data()}, {}, NAN).applies);
  EXPECT_EQ(clipped({sum.data()}, {}, INFINITY).scale, 0);
}

TEST(KernelsSpikeGuard, HoldsBackWhatIsFarAboveTheRest) {
  double mean = 0, variance = 0;
  std::int64_t count = 0;
  bool still = false;
  const auto checkOutcome = [&](float norm, bool applies, double limit) {
    spikeGuard(contextOf(), given(norm), given(applies), given(limit), &mean, &variance, &count, &still, &mean,
               &variance, &count);
    return still;
  };
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(checkOutcome(i % 2 ? 9.0f : 11.0f, true, 3));
  EXPECT_NEAR(mean, 10, 1e-12);
  EXPECT_NEAR(variance, 1, 1e-12);
  EXPECT_FALSE(checkOutcome(13.1f, true, 3));
  EXPECT_FALSE(checkOutcome(10, false, 3));
  EXPECT_TRUE(checkOutcome(1000, true, 0));
  EXPECT_EQ(count, 20);
  EXPECT_TRUE(checkOutcome(12.9f, true, 3));
  EXPECT_EQ(count, 21);
}

TEST(KernelsLossScale, HalvesAndDoubles) {
  double scale = 8;
  std::int64_t good = 0, left = 2;
  bool exhausted = false;
  std::vector<double> scales;
  for (const bool applies : {false, false, false, false, true, true, true, true, false, false}) {
    adjustLossScale(contextOf(), {.window = 3, .hysteresis = 2, .minimum = 2}, &scale, &good, &left, given(applies),
                    &scale, &good, &left, &exhausted);
    scales.push_back(exhausted ? -scale : scale);
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 4, 2, -2, 2, 2, 2, 4, 4, 2}));
}

/// Calls adam on 1001 elements into separate results.
struct AdamResults {
  std::vector<float> p, m, v;
  template <class G>
  explicit AdamResults(const std::vector<G> &g, UpdateGuard guard) : p(1001, NAN), m(1001, NAN), v(1001, NAN) {
    const auto parameter = numbers(1001, 30), average = numbers(1001, 31);
    std::vector<float> square = numbers(1001, 32);
    for (float &value : square)
      value = std::abs(value);
    adam(contextOf(2), 1001,
         {.lr = given(1e-2),
          .beta1 = given(0.9),
          .beta2 = given(0.95),
          .epsilon = given(1e-8),
          .weightDecay = given(0.1),
          .step = given(std::int64_t{3}),
          .decoupled = true,
          .guard = guard},
         parameter.data(), g.data(), average.data(), square.data(), p.data(), m.data(), v.data());
  }
  bool operator==(const AdamResults &) const = default;
};

TEST(KernelsOptimizer, AGuardScalesTheGradientOrHoldsTheStepBack) {
  const auto g = numbers(1001, 33);
  std::vector<float> eighth = g, none(1001, NAN);
  for (float &value : eighth)
    value *= 0.125f;
  EXPECT_EQ(AdamResults(g, {given(0.125f), given(true)}), AdamResults(eighth, {}));
  const AdamResults held(none, {given(NAN), given(false)});
  EXPECT_EQ(held.p, numbers(1001, 30));
  EXPECT_EQ(held.m, numbers(1001, 31));
}

/// The moving average that sgd keeps of 1001 elements in step `count`.
std::vector<float> averageOfSgd(double decay, std::int64_t count, bool applies, std::vector<float> &p) {
  p = numbers(1001, 30);
  std::vector<float> average = numbers(1001, 31);
  const auto g = numbers(1001, 33);
  sgd(contextOf(2), 1001, {.lr = given(0.5), .weightDecay = given(0.0), .guard = {given(1.0f), given(applies)}},
      p.data(), g.data(), nullptr, p.data(), nullptr, nullptr,
      {average.data(), average.data(), given(decay), given(count)});
  return average;
}

TEST(KernelsOptimizer, AMovingAverageStartsAtTheFirstNewParametersAndFollowsStepsThatApply) {
  std::vector<float> p;
  EXPECT_EQ(averageOfSgd(0.75, 1, true, p), p);
  const std::vector<float> later = averageOfSgd(0.75, 2, true, p), before = numbers(1001, 31);
  for (std::size_t i = 0; i < p.size(); ++i)
    ASSERT_NEAR(later[i], 0.75 * before[i] + 0.25 * p[i], 1e-6) << i;
  EXPECT_EQ(averageOfSgd(0.75, 2, false, p), before);
  EXPECT_EQ(p, numbers(1001, 30));
}

/// A 16-bit gradient gives the same results as equal values in float.
template <class Half>
void checkGradientOf() {
  std::vector<Half> gradient;
  std::vector<float> same;
  for (float value : numbers(1001, 34)) {
    gradient.push_back(Half(value));
    same.push_back(static_cast<float>(gradient.back()));
  }
  gradient[7] = Half(0.0f), same[7] = 0;
  EXPECT_EQ(AdamResults(gradient, {given(0.5f), given(true)}), AdamResults(same, {given(0.5f), given(true)}));
  Words sum(exact::words, -1);
  squareSum(contextOf(2), {{gradient.data(), 1001}}, sum.data());
  EXPECT_EQ(sum, sumOf({same}));
  gradient[11] = Half(INFINITY), same[11] = INFINITY;
  squareSum(contextOf(), {{gradient.data(), 1001}}, sum.data());
  EXPECT_EQ(sum, sumOf({same}));
}

TEST(KernelsOptimizer, GradientsOf16BitsAreReadAsTheyAre) {
  checkGradientOf<Bfloat16>();
  checkGradientOf<Float16>();
}

} // namespace
} // namespace fsdpc::rt
