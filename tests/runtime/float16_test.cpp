// Half floats, compared with those of the C++ compiler.
#include "runtime/common/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fsdpc::rt {
namespace {

std::uint16_t bitsOf(_Float16 value) {
  std::uint16_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

TEST(Float16, EveryHalfIsItsFloatAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    _Float16 own;
    std::memcpy(&own, &half, sizeof own);
    const float value = static_cast<float>(half), expected = static_cast<float>(own);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(Float16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    ASSERT_EQ(Float16(value).bits, bits);
  }
}

TEST(Float16, FloatsRoundToTheNearestHalf) {
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 1013) {
    const auto word = static_cast<std::uint32_t>(bits);
    float value;
    std::memcpy(&value, &word, sizeof value);
    if (!std::isnan(value)) {
      ASSERT_EQ(Float16(value).bits, bitsOf(static_cast<_Float16>(value))) << value;
    }
  }
  // Ties, and the ends of the range.
  for (const float value :
       {0x1.002p0f, 0x1.006p0f, 0x1p-25f, 0x1.8p-24f, 65504.0f, 65519.0f, 65520.0f, INFINITY, -0.0f})
    EXPECT_EQ(Float16(value).bits, bitsOf(static_cast<_Float16>(value))) << value;
}

} // namespace
} // namespace fsdpc::rt
