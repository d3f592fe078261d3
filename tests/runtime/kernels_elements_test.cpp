// Copies, gathers, pooling, scalar functions and optimizers.
#include "tests/runtime/kernels_support.h"

#include <algorithm>

namespace fsdpc::rt {
namespace {

TEST(KernelsCopy, EveryPermutationOfOddDimsMatchesLoops) {
  const std::int64_t dims[4] = {3, 17, 5, 33}, strides[4] = {17 * 5 * 33, 5 * 33, 33, 1};
  const auto x = numbers(3 * 17 * 5 * 33, 1);
  int order[4] = {0, 1, 2, 3};
  do {
    CopyShape shape{.rank = 4};
    std::int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      shape.dims[i] = dims[order[i]];
      shape.fromStrides[i] = strides[order[i]];
      shape.toStrides[i] = stride;
      stride *= shape.dims[i];
    }
    std::vector<float> out = unwritten(x.size());
    copyStrided(contextOf(2), shape, bits(x.data()), bits(out.data()));
    std::size_t flat = 0;
    bool same = true;
    for (std::int64_t a = 0; a < shape.dims[0]; ++a)
      for (std::int64_t b = 0; b < shape.dims[1]; ++b)
        for (std::int64_t d = 0; d < shape.dims[2]; ++d)
          for (std::int64_t e = 0; e < shape.dims[3]; ++e, ++flat)
            same &= out[flat] == x[a * shape.fromStrides[0] + b * shape.fromStrides[1] + d * shape.fromStrides[2] +
                                   e * shape.fromStrides[3]];
    EXPECT_TRUE(same) << order[0] << order[1] << order[2] << order[3];
  } while (std::next_permutation(order, order + 4));
}

/// Swaps the last two axes of [2, 70, 24], then takes a slice of the last 20 columns of every row.
template <class T>
void checkMoves() {
  const std::int64_t batch = 2, rows = 70, columns = 24, kept = 20;
  const auto noise = numbers(batch * rows * columns, 4);
  std::vector<T> x(noise.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(static_cast<std::int64_t>(noise[i] * 1e9f));
  // Initial values differ from the expected ones, so that unwritten elements are found.
  std::vector<T> swapped(noise.size()), slice(static_cast<std::size_t>(batch * rows * kept));
  const auto at = [&](std::int64_t b, std::int64_t i, std::int64_t j) -> T & {
    return x[(b * rows + i) * columns + j];
  };
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        swapped[(b * columns + j) * rows + i] = static_cast<T>(~at(b, i, j));
        if (j >= columns - kept)
          slice[(b * rows + i) * kept + j - (columns - kept)] = static_cast<T>(~at(b, i, j));
      }
  copyStrided(contextOf(), {3, {batch, columns, rows}, {rows * columns, 1, columns}, {rows * columns, rows, 1}},
              x.data(), swapped.data());
  copyStrided(contextOf(), {2, {batch * rows, kept}, {columns, 1}, {kept, 1}}, x.data() + columns - kept, slice.data());
  std::size_t wrong = 0;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const T value = at(b, i, j);
        wrong += swapped[(b * columns + j) * rows + i] != value;
        wrong += j >= columns - kept && slice[(b * rows + i) * kept + j - (columns - kept)] != value;
      }
  EXPECT_EQ(wrong, 0u) << sizeof(T);
}

TEST(KernelsCopy, ElementsOfEverySizeAreTransposedAndSliced) {
  checkMoves<std::uint8_t>();
  checkMoves<std::uint16_t>();
  checkMoves<std::uint32_t>();
  checkMoves<std::uint64_t>();
}

TEST(KernelsCopy, ReversedBroadcastAndEmpty) {
  const std::vector<std::uint8_t> x = {1, 2, 3};
  std::vector<std::uint8_t> out(6);
  copyStrided(contextOf(), {2, {2, 3}, {0, -1}, {3, 1}}, x.data() + 2, out.data());
  EXPECT_EQ(out, (std::vector<std::uint8_t>{3, 2, 1, 3, 2, 1}));
  copyStrided(contextOf(), {2, {0, 3}, {0, 1}, {3, 1}}, x.data(), static_cast<std::uint8_t *>(nullptr));
  std::uint8_t one = 0;
  copyStrided(contextOf(), {0, {}, {}, {}}, x.data(), &one);
  EXPECT_EQ(one, 1);
}

TEST(KernelsCopy, TakeShardGivesEachMemberItsShareOfTheWhole) {
  // Groups of two, two ranks apart: {0, 2} and {1, 3}.
  const std::vector<float> whole = numbers(10, 1);
  for (int rank = 0; rank < 4; ++rank) {
    Context c = contextOf();
    c.rank = rank;
    std::vector<float> share = unwritten(5);
    takeShard(c, whole.data(), share.data(), 5 * sizeof(float), 2, 2);
    const auto first = whole.begin() + (rank < 2 ? 0 : 5);
    EXPECT_EQ(share, std::vector<float>(first, first + 5)) << rank;
  }
}

TEST(KernelsIndex, GatherAndScatterAddAreTransposed) {
  const std::vector<float> table = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> indices = {2, -3, 2};
  std::vector<float> rows = unwritten(6);
  gather(contextOf(), {1, 3, 2, 3}, bits(table.data()), indices.data(), bits(rows.data()));
  EXPECT_EQ(rows, (std::vector<float>{5, 6, 1, 2, 5, 6}));
  std::vector<float> back = unwritten(6);
  const GatherShape shape{1, 3, 2, 3};
  const ScratchBuffer scratch(scatterAddScratchBytes(shape));
  scatterAdd(contextOf(2), shape, indices.data(), rows.data(), back.data(), scratch.workspace());
  EXPECT_EQ(back, (std::vector<float>{1, 2, 0, 0, 10, 12}));
}

TEST(KernelsIndex, ManyIndicesThatMeetAddUpAlikeOnAnyThreads) {
  for (const GatherShape shape : {GatherShape{1, 40, 1100, 700}, {3, 7, 5, 300}}) {
    const auto noise = numbers(shape.count, 5), updates = numbers(shape.outer * shape.count * shape.inner, 6);
    std::vector<std::int64_t> indices(noise.size());
    for (std::size_t i = 0; i < indices.size(); ++i)
      indices[i] = static_cast<std::int64_t>(noise[i] * static_cast<float>(shape.size)); // negative ones too
    const auto rowOf = [&](std::int64_t i) { return indices[i] < 0 ? indices[i] + shape.size : indices[i]; };
    const auto elements = static_cast<std::size_t>(shape.outer * shape.size * shape.inner);
    auto x = unwritten(elements), rows = unwritten(updates.size());
    std::vector<double> expected(elements);
    std::vector<float> picked(updates.size());
    for (std::int64_t outer = 0; outer < shape.outer; ++outer)
      for (std::int64_t i = 0; i < shape.count; ++i)
        for (std::int64_t j = 0; j < shape.inner; ++j)
          expected[(outer * shape.size + rowOf(i)) * shape.inner + j] +=
              updates[(outer * shape.count + i) * shape.inner + j];
    const ScratchBuffer scratch(scatterAddScratchBytes(shape));
    scatterAdd(contextOf(2), shape, indices.data(), updates.data(), x.data(), scratch.workspace());
    EXPECT_TRUE(scratch.borderIntact());
    EXPECT_LT(distance(x, expected), 2e-7);
    auto alone = unwritten(elements);
    scatterAdd(contextOf(1), shape, indices.data(), updates.data(), alone.data(), scratch.workspace());
    EXPECT_EQ(x, alone);
    for (std::int64_t outer = 0; outer < shape.outer; ++outer)
      for (std::int64_t i = 0; i < shape.count; ++i)
        for (std::int64_t j = 0; j < shape.inner; ++j)
          picked[(outer * shape.count + i) * shape.inner + j] = x[(outer * shape.size + rowOf(i)) * shape.inner + j];
    gather(contextOf(2), shape, bits(x.data()), indices.data(), bits(rows.data()));
    EXPECT_EQ(rows, picked);
  }
}

TEST(KernelsIndex, GatherNdPicksTuples) {
  const std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7}; // [2, 2, 2], batch 1
  const std::vector<std::int64_t> indices = {1, 0, 0, 1, -1, -1};
  std::vector<float> out = unwritten(3);
  gatherNd(contextOf(), {.batch = 1, .count = 3, .inner = 1, .depth = 2, .dims = {4, 2}}, bits(x.data()),
           indices.data(), bits(out.data()));
  EXPECT_EQ(out, (std::vector<float>{2, 1, 7}));
}

// ---- pooling

/// visit(input index or -1 for padding, output index) in order of the window.
template <class Visit>
void forEachWindowElement(const PoolShape &s, const Visit &visit) {
  const auto flat = [](const std::int64_t(&dims)[3], std::int64_t z, std::int64_t y, std::int64_t x) {
    return (z * dims[1] + y) * dims[2] + x;
  };
  const auto each = [](const std::int64_t(&dims)[3], const auto &body) {
    for (std::int64_t z = 0; z < dims[0]; ++z)
      for (std::int64_t y = 0; y < dims[1]; ++y)
        for (std::int64_t x = 0; x < dims[2]; ++x)
          body(z, y, x);
  };
  each(s.output, [&](std::int64_t oz, std::int64_t oy, std::int64_t ox) {
    each(s.kernel, [&](std::int64_t kz, std::int64_t ky, std::int64_t kx) {
      const std::int64_t z = oz * s.strides[0] + kz * s.dilations[0] - s.padsBefore[0];
      const std::int64_t y = oy * s.strides[1] + ky * s.dilations[1] - s.padsBefore[1];
      const std::int64_t x = ox * s.strides[2] + kx * s.dilations[2] - s.padsBefore[2];
      const bool inside = z >= 0 && y >= 0 && x >= 0 && z < s.input[0] && y < s.input[1] && x < s.input[2];
      visit(inside ? flat(s.input, z, y, x) : -1, flat(s.output, oz, oy, ox));
    });
  });
}

void checkPools(PoolShape shape) {
  const std::int64_t inputs = shape.input[0] * shape.input[1] * shape.input[2];
  const std::int64_t outputs = shape.output[0] * shape.output[1] * shape.output[2];
  const auto x = numbers(shape.planes * inputs, 2), dy = numbers(shape.planes * outputs, 3);
  std::vector<double> largest(dy.size(), -INFINITY), mean(dy.size()), dMean(x.size()), dMax(x.size());
  std::vector<std::int32_t> where(dy.size());
  std::vector<double> inside(outputs);
  forEachWindowElement(shape,
                       [&](std::int64_t in, std::int64_t out) { inside[out] += in >= 0 || shape.countIncludePad; });
  for (std::int64_t plane = 0; plane < shape.planes; ++plane)
    forEachWindowElement(shape, [&](std::int64_t in, std::int64_t out) {
      if (in < 0)
        return;
      const std::int64_t from = plane * inputs + in, to = plane * outputs + out;
      if (x[from] > largest[to]) {
        largest[to] = x[from];
        where[to] = static_cast<std::int32_t>(in);
      }
      mean[to] += x[from] / inside[out];
      dMean[from] += dy[to] / inside[out];
    });
  for (std::size_t to = 0; to < dy.size(); ++to)
    dMax[static_cast<std::int64_t>(to) / outputs * inputs + where[to]] += dy[to];
  auto y = unwritten(dy.size()), dx = unwritten(x.size());
  std::vector<std::int32_t> indices(dy.size(), -1);
  maxPool(contextOf(2), shape, x.data(), y.data(), indices.data());
  EXPECT_EQ(distance(y, largest), 0);
  EXPECT_EQ(indices, where);
  maxPoolGrad(contextOf(2), shape, dy.data(), indices.data(), dx.data());
  EXPECT_LT(distance(dx, dMax), 1e-6);
  y = unwritten(y.size()), dx = unwritten(dx.size());
  averagePool(contextOf(2), shape, x.data(), y.data());
  EXPECT_LT(distance(y, mean), 1e-6);
  averagePoolGrad(contextOf(2), shape, dy.data(), dx.data());
  EXPECT_LT(distance(dx, dMean), 1e-6);
}

TEST(KernelsPool, HalvingMatchesLoops) {
  checkPools({.planes = 5, .input = {1, 9, 7}, .output = {1, 4, 3}, .kernel = {1, 2, 2}, .strides = {1, 2, 2}});
  // Rows of whole vectors, of half a one and of a rest.
  checkPools({.planes = 3, .input = {1, 7, 43}, .output = {1, 3, 21}, .kernel = {1, 2, 2}, .strides = {1, 2, 2}});
}
TEST(KernelsPool, OverlapPaddingAndDilationMatchLoops) {
  checkPools({.planes = 3,
              .input = {1, 8, 6},
              .output = {1, 4, 3},
              .kernel = {1, 3, 3},
              .strides = {1, 2, 2},
              .padsBefore = {0, 1, 1}});
  checkPools({.planes = 3,
              .input = {1, 9, 9},
              .output = {1, 7, 5},
              .kernel = {1, 2, 3},
              .strides = {1, 1, 1},
              .dilations = {1, 2, 2},
              .countIncludePad = true});
}
TEST(KernelsPool, ThreeAxesMatchLoops) {
  checkPools({.planes = 2,
              .input = {5, 8, 6},
              .output = {3, 4, 4},
              .kernel = {3, 2, 3},
              .strides = {2, 2, 1},
              .padsBefore = {1, 0, 0}});
}
TEST(KernelsPool, TheFirstNaNWins) {
  const std::vector<float> x = {1, NAN, 3, NAN};
  float y = 0;
  std::int32_t index = 0;
  maxPool(contextOf(), {.planes = 1, .input = {1, 2, 2}, .kernel = {1, 2, 2}, .strides = {1, 2, 2}}, x.data(), &y,
          &index);
  EXPECT_TRUE(std::isnan(y));
  EXPECT_EQ(index, 1);
}

// ---- scalar functions

TEST(KernelsScalar, NaNInfinityAndIntegersKeepTheirMeaning) {
  const float nan = NAN;
  EXPECT_TRUE(std::isnan(scalar::max(nan, 1.0f)) && std::isnan(scalar::max(1.0f, nan)) &&
              std::isnan(scalar::min(nan, 1.0f)) && std::isnan(scalar::min(1.0f, nan)) &&
              std::isnan(scalar::relu(nan)) && std::isnan(scalar::sign(nan)));
  EXPECT_EQ(scalar::exp(-scalar::infinity), 0.0f);
  EXPECT_EQ(scalar::round(2.5f), 2.0f);
  EXPECT_EQ(scalar::mod<std::int64_t>(-7, 3), 2);
  EXPECT_EQ(scalar::mod(-7.0f, 3.0f), -1.0f);
  EXPECT_EQ(scalar::div<std::int64_t>(-7, 2), -3);
  EXPECT_EQ(scalar::div<std::int64_t>(5, 0), 0);
  EXPECT_EQ(scalar::div<std::uint8_t>(100, 255), 0);
  EXPECT_EQ(scalar::mod<std::uint8_t>(100, 255), 100);
  EXPECT_EQ(scalar::div(std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(scalar::integerPow<std::int64_t>(-3, 3), -27);
  EXPECT_EQ(scalar::cast<std::int32_t>(-2.9f), -2);
  EXPECT_EQ(scalar::cast<std::uint8_t>(300.0f), 44);
  EXPECT_EQ(scalar::cast<std::int64_t>(nan), 0);
  EXPECT_TRUE(scalar::cast<bool>(nan));
}

// ---- optimizers

/// Three steps of a formula in f64, compared with the kernel.
struct OptimizerCase {
  std::vector<float> p = numbers(1001, 30), g = numbers(1001, 31);
  std::vector<double> expected = std::vector<double>(p.begin(), p.end());
  std::vector<std::vector<float>> states{std::vector<float>(1001), std::vector<float>(1001), std::vector<float>(1001)};
  std::vector<std::vector<double>> exact{std::vector<double>(1001), std::vector<double>(1001),
                                         std::vector<double>(1001)};

  template <class Kernel, class Formula>
  void run(const Kernel &kernel, const Formula &formula) {
    for (int step = 1; step <= 3; ++step) {
      kernel(step);
      for (std::size_t i = 0; i < p.size(); ++i)
        formula(step, expected[i], static_cast<double>(g[i]), exact[0][i], exact[1][i], exact[2][i]);
    }
    EXPECT_LT(distance(p, expected), 5e-7);
  }
};

TEST(KernelsOptimizer, AdamWAndAdamFollowTorch) {
  for (const bool decoupled : {false, true}) {
    OptimizerCase test;
    test.run(
        [&](std::int64_t step) {
          adam(contextOf(2), 1001,
               {.lr = given(1e-2),
                .beta1 = given(0.9),
                .beta2 = given(0.95),
                .epsilon = given(1e-8),
                .weightDecay = given(0.1),
                .step = &step,
                .decoupled = decoupled},
               test.p.data(), test.g.data(), test.states[0].data(), test.states[1].data(), test.p.data(),
               test.states[0].data(), test.states[1].data());
        },
        [&](int step, double &p, double g, double &m, double &v, double &) {
          if (decoupled)
            p *= 1 - 1e-2 * 0.1;
          else
            g += 0.1 * p;
          m = 0.9 * m + 0.1 * g;
          v = 0.95 * v + 0.05 * g * g;
          p -= 1e-2 / (1 - std::pow(0.9, step)) * m / (std::sqrt(v) / std::sqrt(1 - std::pow(0.95, step)) + 1e-8);
        });
  }
}

TEST(KernelsOptimizer, SgdFollowsTorch) {
  for (const int variant : {0, 1, 2}) { // plain, momentum, nesterov
    OptimizerCase test;
    float *const buffer = variant == 0 ? nullptr : test.states[0].data();
    test.run(
        [&](std::int64_t step) {
          sgd(contextOf(), 1001,
              {.lr = given(0.1),
               .weightDecay = given(0.01),
               .momentum = given(0.9),
               .dampening = given(variant == 1 ? 0.2 : 0.0),
               .step = &step,
               .nesterov = variant == 2},
              test.p.data(), test.g.data(), buffer, test.p.data(), buffer);
        },
        [&](int step, double &p, double g, double &b, double &, double &) {
          g += 0.01 * p;
          if (variant > 0) {
            b = step == 1 ? g : 0.9 * b + (variant == 1 ? 0.8 : 1) * g;
            g = variant == 2 ? g + 0.9 * b : b;
          }
          p -= 0.1 * g;
        });
  }
}

TEST(KernelsOptimizer, LionStepsBySigns) {
  OptimizerCase test;
  test.run(
      [&](int) {
        lion(contextOf(), 1001,
             {.lr = given(0.01), .beta1 = given(0.9), .beta2 = given(0.99), .weightDecay = given(0.1)}, test.p.data(),
             test.g.data(), test.states[0].data(), test.p.data(), test.states[0].data());
      },
      [](int, double &p, double g, double &m, double &, double &) {
        const double direction = 0.9 * m + 0.1 * g;
        p = p * (1 - 0.01 * 0.1) - 0.01 * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
        m = 0.99 * m + 0.01 * g;
      });
}

TEST(KernelsOptimizer, AdadeltaAdagradAndRmspropFollowTorch) {
  OptimizerCase adadeltaCase;
  adadeltaCase.run(
      [&](int) {
        auto &t = adadeltaCase;
        adadelta(contextOf(), 1001,
                 {.lr = given(1), .rho = given(0.9), .epsilon = given(1e-6), .weightDecay = given(0.01)}, t.p.data(),
                 t.g.data(), t.states[0].data(), t.states[1].data(), t.p.data(), t.states[0].data(),
                 t.states[1].data());
      },
      [](int, double &p, double g, double &s, double &a, double &) {
        g += 0.01 * p;
        s = 0.9 * s + 0.1 * g * g;
        const double d = std::sqrt(a + 1e-6) / std::sqrt(s + 1e-6) * g;
        a = 0.9 * a + 0.1 * d * d;
        p -= d;
      });
  OptimizerCase adagradCase;
  adagradCase.run(
      [&](std::int64_t step) {
        auto &t = adagradCase;
        adagrad(
            contextOf(), 1001,
            {.lr = given(0.1), .lrDecay = given(0.5), .epsilon = given(1e-6), .weightDecay = given(0), .step = &step},
            t.p.data(), t.g.data(), t.states[0].data(), t.p.data(), t.states[0].data());
      },
      [](int step, double &p, double g, double &s, double &, double &) {
        s += g * g;
        p -= 0.1 / (1 + (step - 1) * 0.5) * g / (std::sqrt(s) + 1e-6);
      });
  for (const bool full : {false, true}) {
    OptimizerCase test;
    test.run(
        [&](int) {
          float *const m = full ? test.states[1].data() : nullptr, *const average =
                                                                       full ? test.states[2].data() : nullptr;
          rmsprop(contextOf(), 1001,
                  {.lr = given(0.01),
                   .alpha = given(0.9),
                   .epsilon = given(1e-3),
                   .weightDecay = given(0.1),
                   .momentum = given(0.5)},
                  test.p.data(), test.g.data(), test.states[0].data(), m, average, test.p.data(), test.states[0].data(),
                  m, average);
        },
        [&](int, double &p, double g, double &s, double &m, double &a) {
          g += 0.1 * p;
          s = 0.9 * s + 0.1 * g * g;
          double spread = s;
          if (full) {
            a = 0.9 * a + 0.1 * g;
            spread -= a * a;
          }
          double change = g / (std::sqrt(spread) + 1e-3);
          if (full)
            change = m = 0.5 * m + change;
          p -= 0.01 * change;
        });
  }
}

} // namespace
} // namespace fsdpc::rt
