// The table of emitters and the pieces of text they are made of.
#include "codegen/cpu/cpp_text.h"
#include "codegen/cpu/emitters.h"
#include "codegen/cpu/section.h"
#include <gtest/gtest.h>
#include <limits>

namespace fsdpc {
namespace {

TEST(CpuEmitters, EveryOpPrintsOrSaysWhyNot) {
  for (Op op : allOps())
    EXPECT_NE(emitterOf(op).emit, nullptr) << infoOf(op).name.str();
}

TEST(CpuText, StringsHoldWhatTheyHeldAndEndWhereTheyEnd) {
  EXPECT_EQ(cppString("fc1.weight"), "\"fc1.weight\"");
  EXPECT_EQ(cppString("a\"b\\c"), "\"a\\042b\\134c\"");
  EXPECT_EQ(cppString("?\?/\n1"), "\"\\077\\077/\\0121\"") << "no trigraph, and the digit is not part of the escape";
  EXPECT_EQ(cppString("\xc3\xa9"), "\"\\303\\251\"");
  EXPECT_EQ(cppString(llvm::StringRef("a\0b", 3)), "\"a\"");
}

TEST(CpuText, LiteralsReadBackToTheSameBits) {
  EXPECT_EQ(cppLiteral(DType::f32, 0.1), "0.1f");
  EXPECT_EQ(cppLiteral(DType::f32, 1), "1.0f");
  EXPECT_EQ(cppLiteral(DType::f32, 1e30), "1e+30f");
  EXPECT_EQ(cppLiteral(DType::f32, -std::numeric_limits<double>::infinity()), "-scalar::infinity");
  EXPECT_EQ(cppLiteral(DType::f32, std::numeric_limits<double>::quiet_NaN()), "scalar::notANumber");
  EXPECT_EQ(cppLiteral(DType::i64, -100), "std::int64_t{-100}");
  EXPECT_EQ(cppLiteral(DType::boolean, 1), "true");
  EXPECT_EQ(cppDouble(0.1), "0.1");
  for (double value : {1.0 / 3, 16777216.0, 1e-45, 3.4028234663852886e38, 0.30000001192092896}) {
    auto single = static_cast<float>(value);
    EXPECT_EQ(std::strtof(cppLiteral(DType::f32, value).c_str(), nullptr), single);
    EXPECT_EQ(std::strtod(cppDouble(value).c_str(), nullptr), value);
  }
}

TEST(CpuText, HolesAreFilledInOrNamed) {
  SectionText section;
  section.text = "f(\x01"
                 "0\x02, \x01"
                 "1\x02, \x01"
                 "0\x02);";
  section.holes = {{"Place", "t0", "P + 0x40"}, {"int", "collective1", "3"}};
  EXPECT_EQ(section.filled(), "f(P + 0x40, 3, P + 0x40);");
  EXPECT_EQ(section.filled({false, true}), "f(P + 0x40, r.collective1, P + 0x40);");
}

TEST(CpuText, BroadcastStridesAreZeroWhereAnOperandStretches) {
  EXPECT_EQ(broadcastStridesOf({3, 1}, {2, 3, 4}), (Shape{0, 1, 0}));
  EXPECT_EQ(broadcastStridesOf({2, 3, 4}, {2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(broadcastStridesOf({}, {2}), (Shape{0}));
}

} // namespace
} // namespace fsdpc
