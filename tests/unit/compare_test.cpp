// Differences that the comparator of all tests must detect.
#include "tests/compare/compare.h"

#include "runtime/common/bfloat16.h"
#include <gtest/gtest.h>

namespace fsdpc {
namespace {

using Numbers = std::vector<double>;
constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Compare, NaNOnEitherSideIsInfinitelyFarWhateverFollows) {
  EXPECT_EQ(largestError(Numbers{NAN, 1, 5}, Numbers{1, 1, 1}), infinity);
  EXPECT_EQ(largestError(Numbers{1, 1, 5}, Numbers{1, NAN, 1}), infinity);
  EXPECT_EQ(largestError(Numbers{1, 5, NAN}, Numbers{1, 1, 1}), infinity);
  EXPECT_EQ(largestError(Numbers{NAN}, Numbers{NAN}), infinity);
  EXPECT_EQ(relativeError(Numbers{NAN, 1}, Numbers{1, 1}), infinity);
  EXPECT_EQ(relativeError(Numbers{NAN}, Numbers{0}), infinity);
  EXPECT_EQ(relativeError(Numbers{1, 1}, Numbers{1, NAN}), infinity);
}

TEST(Compare, InfinitiesOfOneSignAreEqualAndNothingElseIsNearThem) {
  EXPECT_EQ(largestError(Numbers{infinity, -infinity}, Numbers{infinity, -infinity}), 0);
  EXPECT_EQ(largestError(Numbers{infinity}, Numbers{-infinity}), infinity);
  EXPECT_EQ(largestError(Numbers{infinity}, Numbers{1}), infinity);
  EXPECT_EQ(largestError(Numbers{1}, Numbers{infinity}), infinity);
  EXPECT_EQ(relativeError(Numbers{1, 2}, Numbers{1, infinity}), infinity) << "the scale is that of numbers";
  EXPECT_EQ(relativeError(Numbers{1.5, infinity}, Numbers{1, infinity}), 0.5);
}

TEST(Compare, MissingElementsAreInfinitelyFar) {
  EXPECT_EQ(largestError(Numbers{1}, Numbers{1, 1}), infinity);
  EXPECT_EQ(largestError(Numbers{1, 1}, Numbers{1}), infinity);
  EXPECT_EQ(largestError(Numbers{}, Numbers{1}), infinity);
  EXPECT_EQ(relativeError(Numbers{1}, Numbers{1, 1}), infinity);
  EXPECT_EQ(largestError(Numbers{}, Numbers{}), 0);
}

TEST(Compare, ElementsThatNobodyWroteAreInfinitelyFar) {
  std::vector<float> floats = unwritten(3);
  floats[0] = floats[1] = 1;
  EXPECT_EQ(largestError(floats, Numbers{1, 1, 1}), infinity);
  std::vector<rt::Bfloat16> halves = unwritten<rt::Bfloat16>(2);
  halves[1] = rt::Bfloat16(1);
  EXPECT_EQ(largestError(halves, Numbers{1, 1}), infinity);
}

TEST(Compare, NumbersAreAsFarAsTheyAre) {
  EXPECT_EQ(largestError(Numbers{1, 2.5, 3}, Numbers{1, 2, 3}), 0.5);
  EXPECT_EQ(largestError(std::vector<rt::Bfloat16>{rt::Bfloat16(2)}, Numbers{3}), 1);
  EXPECT_EQ(relativeError(Numbers{2, 4}, Numbers{2, -5}), 9.0 / 5);
  EXPECT_EQ(relativeError(Numbers{0.25}, Numbers{0.5}, 1), 0.25);
  EXPECT_EQ(relativeError(Numbers{0}, Numbers{0}), 0);
  EXPECT_EQ(relativeError(Numbers{1}, Numbers{0}), infinity);
  EXPECT_EQ(worseOf(1, 2), 2);
  EXPECT_EQ(worseOf(2, NAN), infinity);
  EXPECT_EQ(worseOf(NAN, 2), infinity);
}

} // namespace
} // namespace fsdpc
