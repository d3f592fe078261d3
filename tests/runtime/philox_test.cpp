#include "runtime/common/philox.h"

#include <gtest/gtest.h>

namespace fsdpc::rt {
namespace {

void expectWords(const PhiloxWords &words, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  EXPECT_EQ(words.word[0], a);
  EXPECT_EQ(words.word[1], b);
  EXPECT_EQ(words.word[2], c);
  EXPECT_EQ(words.word[3], d);
}

TEST(Philox, KnownAnswersOfRandom123) {
  expectWords(philox({0, 0, 0, 0}, {0, 0}), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  const std::uint32_t ones = 0xffffffff;
  expectWords(philox({ones, ones, ones, ones}, {ones, ones}), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expectWords(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}), 0xd16cfe09,
              0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, UniformIsInZeroToOne) {
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_EQ(uniform01(0x80000000u), 0.5f);
  EXPECT_LT(uniform01(0xffffffffu), 1.0f);
}

} // namespace
} // namespace fsdpc::rt
