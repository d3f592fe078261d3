#include "runtime/common/initial_values.h"
#include "runtime/common/weights.h"
#include "tests/runtime/fake_program.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace fsdpc::rt {
namespace {

ParameterInfo parameterOf(const char *name, DType dtype, InitialValues initial) {
  ParameterInfo parameter{name, dtype, {1, {1 << 20}}, 0, 0, true, name, {0}, {1, {1 << 20}}, 0, false};
  parameter.initial = initial;
  return parameter;
}

std::vector<float> draw(const ParameterInfo &parameter, std::uint64_t seed, std::int64_t first, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  drawRange(parameter, seed, first, elements, DType::f32, reinterpret_cast<std::byte *>(values.data()));
  return values;
}

struct Moments {
  double mean = 0, deviation = 0, low = 1e9, high = -1e9;
};

Moments momentsOf(const std::vector<float> &values) {
  Moments m;
  for (const float value : values) {
    m.mean += value / static_cast<double>(values.size());
    m.low = std::min<double>(m.low, value);
    m.high = std::max<double>(m.high, value);
  }
  for (const float value : values)
    m.deviation += (value - m.mean) * (value - m.mean) / static_cast<double>(values.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(InitialValues, AnElementIsTheSameWhateverRangeItIsDrawnIn) {
  for (const InitialKind kind : {InitialKind::uniform, InitialKind::normal}) {
    const ParameterInfo parameter = parameterOf("w", DType::f32, {kind, -0.5, 2});
    const std::vector<float> all = draw(parameter, 7, 0, 5000);
    for (const std::int64_t first : {0, 1, 2, 3, 4, 1023, 1025, 3001})
      for (const std::int64_t many : {0, 1, 2, 5, 1024, 1027}) {
        const std::vector<float> part = draw(parameter, 7, first, many);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first)) << first << " " << many;
      }
  }
}

TEST(InitialValues, SeedAndNameDecide) {
  const InitialValues normal{InitialKind::normal, 0, 1};
  const std::vector<float> one = draw(parameterOf("layers.0.w", DType::f32, normal), 0, 0, 64);
  EXPECT_EQ(one, draw(parameterOf("layers.0.w", DType::f32, normal), 0, 0, 64));
  EXPECT_NE(one, draw(parameterOf("layers.0.w", DType::f32, normal), 1, 0, 64));
  EXPECT_NE(one, draw(parameterOf("layers.1.w", DType::f32, normal), 0, 0, 64));
}

TEST(InitialValues, HaveTheMomentsOfTheirDistribution) {
  // 2^20 samples: standard errors are below 0.001 of the deviation.
  const Moments uniform = momentsOf(draw(parameterOf("u", DType::f32, {InitialKind::uniform, -1, 3}), 5, 0, 1 << 20));
  EXPECT_NEAR(uniform.mean, 1, 0.01);
  EXPECT_NEAR(uniform.deviation, 4 / std::sqrt(12.0), 0.01);
  EXPECT_GE(uniform.low, -1);
  EXPECT_LE(uniform.high, 3);
  EXPECT_LT(uniform.low, -0.99);
  EXPECT_GT(uniform.high, 2.99);
  const std::vector<float> drawn = draw(parameterOf("n", DType::f32, {InitialKind::normal, 2, 0.5}), 5, 0, 1 << 20);
  const Moments normal = momentsOf(drawn);
  EXPECT_NEAR(normal.mean, 2, 0.005);
  EXPECT_NEAR(normal.deviation, 0.5, 0.005);
  const auto beyond = std::count_if(drawn.begin(), drawn.end(), [](float x) { return std::abs(x - 2) > 1; });
  EXPECT_NEAR(static_cast<double>(beyond) / (1 << 20), 0.0455, 0.002); // two deviations
  double product = 0;
  for (std::size_t i = 0; i + 1 < drawn.size(); i += 2)
    product += (drawn[i] - 2.0) * (drawn[i + 1] - 2.0) / (1 << 19);
  EXPECT_NEAR(product, 0, 0.001); // the two of a pair are independent
}

TEST(InitialValues, CopiesRoundWhatTheParameterIs) {
  const ParameterInfo parameter = parameterOf("w", DType::f32, {InitialKind::normal, 0, 1});
  const std::vector<float> own = draw(parameter, 3, 11, 100);
  std::vector<std::uint16_t> copy(100), expected(100);
  drawRange(parameter, 3, 11, 100, DType::bf16, reinterpret_cast<std::byte *>(copy.data()));
  convertElements(ElementType::f32, reinterpret_cast<const std::byte *>(own.data()), DType::bf16,
                  reinterpret_cast<std::byte *>(expected.data()), 100);
  EXPECT_EQ(copy, expected);
}

TEST(InitialValues, EveryRankDrawsItsShardAndPaddingStaysZero) {
  const InitialValues uniform{InitialKind::uniform, 1, 2};
  std::vector<float> joined;
  for (int rank = 0; rank < 2; ++rank) {
    FakeProgram program(2);
    program.parameters[0].inWeightsFile = false;
    program.parameters[0].initial = uniform;
    alignas(64) std::byte arena[1024];
    std::memset(arena, 0x7f, sizeof arena);
    Context context;
    context.privateArena = arena;
    context.rank = rank;
    context.worldSize = 2;
    resetState(program.info, context);
    int beats = 0;
    drawInitialValues(program.info, context, 9, [](std::size_t) { return true; }, [&] { ++beats; });
    EXPECT_EQ(beats, 1);
    joined.insert(joined.end(), context.at<float>(at::shard), context.at<float>(at::shard) + 2);
    EXPECT_EQ(context.at<float>(at::frozen)[0], 0.0f); // has values in the file
  }
  std::vector<float> whole(4);
  FakeProgram program(1);
  program.parameters[0].initial = uniform;
  drawRange(program.parameters[0], 9, 0, 3, DType::f32, reinterpret_cast<std::byte *>(whole.data()));
  EXPECT_EQ(joined, whole);
}

} // namespace
} // namespace fsdpc::rt
