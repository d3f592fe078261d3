// Element kernels of the cuda target, in addition to the kernel tests of both targets
// (tests/runtime/kernels_elements_test.cpp): Bfloat16, low-precision copies of parameters, results of an index outside
// the axis, random numbers inside kernels.
#include "runtime/common/exact_sum.h"
#include "runtime/cuda/kernels/random.h"
#include "tests/emulated/bfloat16_support.h"

#include <functional>

namespace fsdpc::rt {
namespace {

// ---- copies

TEST(Bfloat16Copies, FillWritesTheValueWhateverItsBytes) {
  for (const float value : {0.0f, 1.0f, -3.5f}) { // a memset suffices for 0 only
    auto out = unwritten<Bfloat16>(1001);
    fill(contextOf(), out.data(), 1000, Bfloat16(value));
    for (int i = 0; i < 1000; ++i)
      ASSERT_EQ(static_cast<float>(out[i]), value) << i;
    EXPECT_TRUE(std::isnan(static_cast<float>(out[1000])));
  }
  auto doubles = unwritten<double>(3);
  fill(contextOf(), doubles.data(), 3, -0.1);
  EXPECT_EQ(doubles, std::vector<double>(3, -0.1));
}

TEST(Bfloat16Copies, IotaCountsInDoubleAndRoundsOnce) {
  auto out = unwritten<Bfloat16>(2 * 400 * 3);
  iota(contextOf(), 2, 400, 3, 0.1, 0.3, out.data());
  for (int i = 0; i < 2 * 400 * 3; ++i)
    ASSERT_EQ(out[i].bits, Bfloat16(static_cast<float>(0.1 + 0.3 * (i / 3 % 400))).bits) << i;
}

// ---- indices

TEST(Bfloat16Indices, UpdatesThatMeetAreSummedInFloatAndRoundedOnce) {
  const GatherShape shape{1, 5, 130, 600};
  const auto updates = bfloat16Numbers(shape.count * shape.inner, 7);
  const auto updates16 = roundedToBfloat16(updates);
  std::vector<std::int32_t> indices(600);
  std::vector<double> exact(5 * 130), absolute(5 * 130);
  for (int i = 0; i < 600; ++i) {
    indices[i] = i * i % 5;
    for (int j = 0; j < 130; ++j) {
      const double update = static_cast<double>(updates[i * 130 + j]);
      exact[indices[i] * 130 + j] += update;
      absolute[indices[i] * 130 + j] += std::abs(update);
    }
  }
  std::vector<float> floats = unwritten(5 * 130);
  scatterAdd(contextOf(), shape, indices.data(), updates16.data(), floats.data());
  for (int i = 0; i < 5 * 130; ++i) // the tolerance is from index.h
    EXPECT_LE(errorOf(asDouble(floats[i]), exact[i]), 8 * 0x1p-24 * absolute[i]) << i;
  auto rounded = unwritten<Bfloat16>(5 * 130);
  scatterAdd(contextOf(), shape, indices.data(), updates16.data(), rounded.data());
  EXPECT_EQ(asFloats(rounded), asFloats(roundedToBfloat16(floats)));
}

TEST(IndexOutside, GatheredElementsHaveAllBitsSet) {
  for (const std::int64_t inner : {2, 4}) { // rows of single elements, and of 16 bytes
    const std::vector<float> table = numbers(3 * inner, 1);
    const std::vector<std::int64_t> indices = {3, 1, -4};
    std::vector<float> rows(3 * inner);
    gather(contextOf(), {1, 3, inner, 3}, bits(table.data()), indices.data(), bits(rows.data()));
    for (std::int64_t j = 0; j < inner; ++j) {
      EXPECT_TRUE(std::isnan(rows[j]) && std::isnan(rows[2 * inner + j]));
      EXPECT_EQ(rows[inner + j], table[inner + j]);
    }
  }
  const std::vector<std::int32_t> table = {7, 8, 9, 10}; // [2, 2]
  const std::vector<std::int64_t> tuples = {0, 2, 1, 1};
  std::vector<std::int32_t> picked(2);
  gatherNd(contextOf(), {.batch = 1, .count = 2, .inner = 1, .depth = 2, .dims = {2, 2}}, bits(table.data()),
           tuples.data(), bits(picked.data()));
  EXPECT_EQ(picked, (std::vector<std::int32_t>{-1, 10}));
}

TEST(IndexOutside, ScatteredFloatsShowNaNAtPositionZeroAndIntegersLeaveTheUpdateOut) {
  const std::vector<std::int64_t> indices = {1, 5, 0, 1};
  const std::vector<float> updates = {1, 2, 3, 4};
  std::vector<float> x(3);
  scatterAdd(contextOf(), {1, 3, 1, 4}, indices.data(), updates.data(), x.data());
  EXPECT_TRUE(std::isnan(x[0]));
  EXPECT_EQ(x[1], 5);
  EXPECT_EQ(x[2], 0);
  const std::vector<std::int64_t> integers = {1, 2, 3, 4};
  std::vector<std::int64_t> sums(3);
  scatterAdd(contextOf(), {1, 3, 1, 4}, indices.data(), integers.data(), sums.data());
  EXPECT_EQ(sums, (std::vector<std::int64_t>{3, 5, 0}));
}

// ---- random numbers

__global__ void writeUniforms(int rank, RandomShape shape, std::uint64_t key, std::int64_t count, float *out) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = randomUniformAt(rank, shape, key, i);
}

TEST(RandomNumbers, AKernelFindsThoseOfTheDefinition) {
  const RandomShape shape{3, 5, 37}; // sample axis in the middle
  const std::uint64_t key = randomKey(7, 3, 1);
  const std::int64_t n = 3 * 5 * 37;
  std::vector<float> out = unwritten(n);
  launch(contextOf(), Grid{dim3(3), dim3(64)}, writeUniforms, 2, shape, key, n, out.data());
  for (std::int64_t flat = 0; flat < n; ++flat) {
    const std::int64_t outer = flat / (5 * 37), sample = flat / 37 % 5, inner = flat % 37;
    ASSERT_EQ(out[flat], uniformAt(key, 2 * 5 + sample, outer * 37 + inner)) << flat;
  }
}

TEST(RandomNumbers, SomeSamplesOfARankGetTheirOwn) {
  const std::uint64_t key = randomKey(7, 3, 1);
  std::vector<float> one = unwritten(37);
  const RandomShape shape{.inner = 37, .rankSamples = 5, .firstSample = 3};
  launch(contextOf(), Grid{dim3(1), dim3(32)}, writeUniforms, 2, shape, key, std::int64_t{37}, one.data());
  for (std::int64_t inner = 0; inner < 37; ++inner)
    ASSERT_EQ(one[inner], uniformAt(key, 2 * 5 + 3, inner)) << inner;
}

// ---- optimizers

constexpr std::int64_t parameters = 1001;

/// An optimizer's tensors; `lowPrecision` may be null.
template <class T>
struct OptimizerTensors {
  std::vector<T> buffer;
  T *p, *g, *s[3];

  /// Each tensor starts `offset` elements after an aligned address.
  explicit OptimizerTensors(std::int64_t offset) : buffer(5 * 1024 + 8) {
    T *const start = buffer.data() + (16 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 16) % 16 / sizeof(T);
    const auto values = numbers(5 * 1024, 30);
    for (std::size_t i = 0; i < values.size(); ++i)
      start[i] = static_cast<T>(std::abs(values[i]) + (i / 1024 == 2 ? 3 : 0)); // an average square exceeds a square
    p = start + offset;
    g = p + 1024;
    for (int i = 0; i < 3; ++i)
      s[i] = p + (i + 2) * 1024;
  }
};

template <class T>
using OptimizerCall = std::function<void(const OptimizerTensors<T> &, Bfloat16 *)>;

constexpr double lr = 0.01, decay = 0.1, rate = 0.9, epsilon = 1e-3;
constexpr std::int64_t step = 2;

template <class T>
std::vector<OptimizerCall<T>> everyOptimizer() {
  return {
      [](auto &t, auto *low) {
        sgd(contextOf(), parameters, {given(lr), given(decay), given(rate), given(decay), given(step)}, t.p, t.g,
            t.s[0], t.p, t.s[0], low);
      },
      [](auto &t, auto *low) {
        adam(contextOf(), parameters,
             {given(lr), given(rate), given(rate), given(epsilon), given(decay), given(step), true}, t.p, t.g, t.s[0],
             t.s[1], t.p, t.s[0], t.s[1], low);
      },
      [](auto &t, auto *low) {
        adadelta(contextOf(), parameters, {given(lr), given(rate), given(epsilon), given(decay)}, t.p, t.g, t.s[0],
                 t.s[1], t.p, t.s[0], t.s[1], low);
      },
      [](auto &t, auto *low) {
        adagrad(contextOf(), parameters, {given(lr), given(decay), given(epsilon), given(decay), given(step)}, t.p, t.g,
                t.s[0], t.p, t.s[0], low);
      },
      [](auto &t, auto *low) {
        rmsprop(contextOf(), parameters, {given(lr), given(rate), given(epsilon), given(decay), given(rate)}, t.p, t.g,
                t.s[0], t.s[1], t.s[2], t.p, t.s[0], t.s[1], t.s[2], low);
      },
  };
}

/// The copy is the new parameter rounded, nothing beyond it is touched, and the results in T are bitwise identical to
/// those without it, aligned or not.
template <class T>
void checkLowPrecision(const OptimizerCall<T> &optimizer) {
  OptimizerTensors<T> without(0);
  optimizer(without, nullptr);
  for (const int offset : {0, 1, 2, 3}) {
    OptimizerTensors<T> with(offset), same(offset);
    std::copy_n(OptimizerTensors<T>(0).p, 5 * 1024, with.p); // the same values at the other offset
    std::vector<Bfloat16> low(parameters + 9, Bfloat16(-77.0f));
    Bfloat16 *const copy = low.data() + offset;
    optimizer(with, copy);
    EXPECT_TRUE(std::equal(with.p, with.p + 4 * 1024 + parameters, without.p)) << offset;
    int wrong = 0;
    for (std::int64_t i = 0; i < parameters; ++i)
      wrong += copy[i].bits != Bfloat16(static_cast<float>(with.p[i])).bits;
    EXPECT_EQ(wrong, 0) << offset;
    EXPECT_EQ(static_cast<float>(copy[parameters]), -77) << offset;
    EXPECT_TRUE(offset == 0 || static_cast<float>(copy[-1]) == -77) << offset;
  }
}

/// The average of step 2 lies between the old one and the new parameter, at any offset, and the results are those
/// without.
template <class T>
void checkAverage() {
  OptimizerTensors<T> without(0);
  const auto update = [](auto &t, WeightAverage<T> average) {
    adagrad(contextOf(), parameters, {given(lr), given(decay), given(epsilon), given(decay), given(step)}, t.p, t.g,
            t.s[0], t.p, t.s[0], nullptr, average);
  };
  update(without, {});
  for (const int offset : {0, 1, 3}) {
    OptimizerTensors<T> with(0);
    std::vector<T> before(parameters + 8, T(2)), after(parameters + 8, T(-77));
    update(with, {before.data() + offset, after.data() + offset, given(rate), given(step)});
    EXPECT_TRUE(std::equal(with.p, with.p + 4 * 1024, without.p)) << offset;
    double largest = 0;
    for (std::int64_t i = 0; i < parameters; ++i)
      largest = std::max(largest, std::abs(double(after[i + offset]) - (rate * 2 + (1 - rate) * double(with.p[i]))));
    EXPECT_LT(largest, 1e-6) << offset;
    EXPECT_EQ(after[parameters + offset], T(-77)) << offset;
  }
}

TEST(OptimizerAverage, FollowsTheNewParameterAndChangesNothingElse) {
  checkAverage<float>();
  checkAverage<double>();
}

/// A 16-bit gradient, at any offset, gives the same results as the same values in float.
template <class Half>
void checkGradientOf() {
  for (const int offset : {0, 1, 3}) {
    OptimizerTensors<float> wide(0), same(0);
    std::vector<Half> gradient(1024 + 8);
    for (std::int64_t i = 0; i < parameters; ++i) {
      gradient[static_cast<std::size_t>(i + offset)] = Half(wide.g[i]);
      wide.g[i] = static_cast<float>(Half(wide.g[i]));
    }
    const auto update = [](auto &t, auto *g) {
      adam(contextOf(), parameters,
           {given(lr), given(rate), given(rate), given(epsilon), given(decay), given(step), true}, t.p, g, t.s[0],
           t.s[1], t.p, t.s[0], t.s[1]);
    };
    update(same, gradient.data() + offset);
    update(wide, wide.g);
    for (const auto &[mine, theirs] : {std::pair(same.p, wide.p), {same.s[0], wide.s[0]}, {same.s[1], wide.s[1]}})
      EXPECT_TRUE(std::equal(mine, mine + parameters, theirs)) << offset;
    std::vector<std::int64_t> own(exact::words), other(exact::words);
    squareSum(contextOf(), {{gradient.data() + offset, parameters}}, own.data());
    squareSum(contextOf(), {{wide.g, parameters}}, other.data());
    EXPECT_EQ(own, other) << offset;
  }
}

TEST(OptimizerLowPrecision, AGradientOf16BitsIsReadAsItIs) {
  checkGradientOf<Bfloat16>();
  checkGradientOf<Float16>();
}

TEST(OptimizerLowPrecision, TheCopyIsTheNewParameterRoundedWhereverItLies) {
  for (const auto &optimizer : everyOptimizer<float>())
    checkLowPrecision<float>(optimizer);
  for (const auto &optimizer : everyOptimizer<double>())
    checkLowPrecision<double>(optimizer);
}

TEST(OptimizerLowPrecision, ParametersInDoubleFollowTorch) {
  OptimizerTensors<double> t(0);
  const OptimizerTensors<double> before(0);
  everyOptimizer<double>()[1](t, nullptr);
  for (std::int64_t i = 0; i < parameters; ++i) {
    const double g = before.g[i], m = rate * before.s[0][i] + (1 - rate) * g,
                 v = rate * before.s[1][i] + (1 - rate) * g * g, correction = 1 - std::pow(rate, step);
    const double p = before.p[i] * (1 - lr * decay) - lr / correction * m / (std::sqrt(v / correction) + epsilon);
    ASSERT_NEAR(t.p[i], p, 1e-14) << i;
  }
}

} // namespace
} // namespace fsdpc::rt
