#include "runtime/common/element_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace fsdpc::rt {
namespace {

template <class From, class To>
std::vector<To> converted(ElementType from, const std::vector<From> &values, DType to, std::int64_t *misfit = nullptr) {
  std::vector<To> result(values.size());
  const std::int64_t index =
      convertElements(from, reinterpret_cast<const std::byte *>(values.data()), to,
                      reinterpret_cast<std::byte *>(result.data()), static_cast<std::int64_t>(values.size()));
  if (misfit)
    *misfit = index;
  return result;
}

TEST(ElementTypes, EveryHalfComesBackThroughFloat) {
  std::vector<std::uint16_t> halves;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    if ((bits & 0x7fff) <= 0x7c00) // all but NaN
      halves.push_back(static_cast<std::uint16_t>(bits));
  const auto floats = converted<std::uint16_t, float>(ElementType::f16, halves, DType::f32);
  EXPECT_EQ((converted<float, std::uint16_t>(ElementType::f32, floats, DType::f16)), halves);
}

TEST(ElementTypes, HalvesRoundToEven) {
  const auto bits = [](float value) {
    return converted<float, std::uint16_t>(ElementType::f32, {value}, DType::f16)[0];
  };
  EXPECT_EQ(bits(1.0f + 0x1p-11f), 0x3c00);     // half way, down to even
  EXPECT_EQ(bits(1.0f + 3 * 0x1p-11f), 0x3c02); // half way, up to even
  EXPECT_EQ(bits(2.0f - 0x1p-12f), 0x4000);     // carries into the exponent
  EXPECT_EQ(bits(65519.0f), 0x7bff);
  EXPECT_EQ(bits(65520.0f), 0x7c00);
  EXPECT_EQ(bits(0x1p-25f), 0);
  EXPECT_EQ(bits(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(bits(std::nanf("")) & 0x7e00, 0x7e00);
}

TEST(ElementTypes, BFloat16RoundsToEven) {
  const auto bits = [](float value) {
    return converted<float, std::uint16_t>(ElementType::f32, {value}, DType::bf16)[0];
  };
  EXPECT_EQ(bits(1.0f), 0x3f80);
  EXPECT_EQ(bits(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(bits(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(converted<std::uint16_t, float>(ElementType::bf16, {bits(std::nanf(""))}, DType::f32)[0]));
}

TEST(ElementTypes, IntegersThatDoNotFitAreReported) {
  std::int64_t misfit = 0;
  EXPECT_EQ((converted<std::int64_t, std::int32_t>(ElementType::i64, {1, -2}, DType::i32, &misfit)),
            (std::vector<std::int32_t>{1, -2}));
  EXPECT_EQ(misfit, -1);
  converted<std::int64_t, std::int32_t>(ElementType::i64, {1, 1ll << 31}, DType::i32, &misfit);
  EXPECT_EQ(misfit, 1);
  converted<std::uint64_t, std::int64_t>(ElementType::u64, {~0ull}, DType::i64, &misfit);
  EXPECT_EQ(misfit, 0);
}

TEST(ElementTypes, FloatsBecomeNoIntegers) {
  EXPECT_FALSE(isConvertible(ElementType::f32, DType::i64));
  EXPECT_FALSE(isConvertible(ElementType::i32, DType::boolean));
  EXPECT_TRUE(isConvertible(ElementType::u8, DType::f32));
  EXPECT_TRUE(isConvertible(ElementType::boolean, DType::i64));
}

} // namespace
} // namespace fsdpc::rt
