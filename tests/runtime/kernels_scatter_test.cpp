// Scatters and the largest elements of rows, compared with plain loops.
#include "tests/runtime/kernels_support.h"

#include <algorithm>
#include <numeric>

namespace fsdpc::rt {
namespace {

double combined(Reduction reduction, double x, double update) {
  switch (reduction) {
  case Reduction::none: return update;
  case Reduction::add: return x + update;
  case Reduction::mul: return x * update;
  case Reduction::max: return std::max(x, update);
  case Reduction::min: return std::min(x, update);
  }
  return 0;
}

/// Multiples of 1/8, so that sums and products of a few are exact.
std::vector<float> exactNumbers(std::int64_t count, int seed) {
  std::vector<float> values = numbers(count, seed);
  for (float &value : values)
    value = std::round(value * 16) / 8;
  return values;
}

class Scatters : public testing::TestWithParam<Reduction> {};

TEST_P(Scatters, TuplesThatMeetAreTakenInTheirOrder) {
  for (const GatherNdShape &shape : {GatherNdShape{.batch = 1, .count = 7, .inner = 40, .depth = 2, .dims = {3, 4}},
                                     GatherNdShape{.batch = 9, .count = 4, .inner = 1, .depth = 1, .dims = {6}},
                                     GatherNdShape{.batch = 2, .count = 5, .inner = 3, .depth = 1, .dims = {20}}}) {
    const std::int64_t rows = shape.rows(), tuples = shape.batch * shape.count;
    const auto x = exactNumbers(shape.batch * rows * shape.inner, 1), updates = exactNumbers(tuples * shape.inner, 2);
    const auto noise = numbers(tuples * shape.depth, 3);
    std::vector<std::int32_t> indices(noise.size());
    std::vector<float> expected = x, y(x.size(), NAN);
    for (std::int64_t i = 0; i < tuples; ++i) {
      std::int64_t row = 0;
      for (int d = 0; d < shape.depth; ++d) {
        const std::int64_t at = i * shape.depth + d, size = shape.dims[d];
        indices[at] = static_cast<std::int32_t>(std::floor(noise[at] * static_cast<float>(size)));
        indices[at] = std::clamp<std::int32_t>(indices[at], static_cast<std::int32_t>(-size),
                                               static_cast<std::int32_t>(size - 1));
        row = row * size + (indices[at] + size) % size;
      }
      for (std::int64_t j = 0; j < shape.inner; ++j) {
        float &element = expected[(i / shape.count * rows + row) * shape.inner + j];
        element = static_cast<float>(combined(GetParam(), element, updates[i * shape.inner + j]));
      }
    }
    scatterNd(contextOf(2), shape, GetParam(), x.data(), indices.data(), updates.data(), y.data());
    EXPECT_EQ(y, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Scatters,
                         testing::Values(Reduction::none, Reduction::add, Reduction::mul, Reduction::max,
                                         Reduction::min));

TEST(KernelsScatter, NaNWinsAndElementsOfAnySizeAreReplaced) {
  const std::vector<float> x = {1, NAN, 3}, updates = {NAN, 5};
  const std::vector<std::int64_t> indices = {-3, 1};
  for (const Reduction reduction : {Reduction::max, Reduction::min}) {
    std::vector<float> y(3);
    scatterNd(contextOf(), {.count = 2, .dims = {3}}, reduction, x.data(), indices.data(), updates.data(), y.data());
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]) && y[2] == 3);
  }
  const std::vector<std::uint16_t> old = {7, 8, 9}, fresh = {50000, 4};
  std::vector<std::uint16_t> y(3);
  scatterNd(contextOf(), {.count = 2, .dims = {3}}, Reduction::none, old.data(), indices.data(), fresh.data(),
            y.data());
  EXPECT_EQ(y, (std::vector<std::uint16_t>{50000, 4, 9}));
}

TEST(KernelsTopK, AreTheFirstOfASortedRow) {
  for (const TopKShape &shape : {TopKShape{3, 100, 7}, TopKShape{2, 33, 33, true}, TopKShape{300, 5, 1}}) {
    std::vector<float> x = exactNumbers(shape.rows * shape.count, 4); // many are equal
    x[3] = NAN;
    std::vector<float> values(shape.rows * shape.k, -100);
    std::vector<std::int64_t> indices(values.size(), -1), order(shape.count);
    topK(contextOf(2), shape, x.data(), values.data(), indices.data());
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const float *const from = x.data() + row * shape.count;
      const auto rank = [&](std::int64_t i) { return std::isnan(from[i]) ? INFINITY : from[i]; };
      std::iota(order.begin(), order.end(), std::int64_t{0});
      std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
        return shape.smallest ? rank(a) < rank(b) : rank(a) > rank(b);
      });
      for (std::int64_t i = 0; i < shape.k; ++i) {
        ASSERT_EQ(indices[row * shape.k + i], order[i]) << "row " << row << ", place " << i;
        ASSERT_TRUE(values[row * shape.k + i] == from[order[i]] || std::isnan(from[order[i]]));
      }
    }
  }
}

} // namespace
} // namespace fsdpc::rt
