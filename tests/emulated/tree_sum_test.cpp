// The sum over ranks under --deterministic: bitwise identical to the cpu target's tree.
#include "runtime/cuda/kernels/tree_sum.h"
#include "tests/runtime/kernels_support.h"
#include "tests/runtime/tree_sum_definition.h"

namespace fsdpc::rt {
namespace {

using test::treeSumOf;

TEST(TreeSum, AddsInTheOrderOfTheCpuTargetForAnyNumberOfRanks) {
  constexpr std::int64_t elements = 37;
  for (int ranks = 1; ranks <= 17; ++ranks) {
    const std::vector<float> parts = numbers(ranks * elements, static_cast<std::uint64_t>(ranks));
    std::vector<float> sums = unwritten(elements);
    const Context c = contextOf();
    treeSum(c, deviceOf(c).compute, parts.data(), ranks, sums.data(), elements, DType::f32);
    for (std::int64_t i = 0; i < elements; ++i) {
      std::vector<float> column;
      for (int rank = 0; rank < ranks; ++rank)
        column.push_back(parts[static_cast<std::size_t>(rank * elements + i)]);
      ASSERT_EQ(sums[static_cast<std::size_t>(i)], treeSumOf(column, 0, column.size())) << ranks << " ranks";
    }
  }
}

template <class Half>
void checkHalves(DType dtype) {
  constexpr std::int64_t elements = 37;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    std::vector<Half> parts, sums = unwritten<Half>(elements);
    for (float value : numbers(ranks * elements, static_cast<std::uint64_t>(ranks)))
      parts.push_back(Half(value));
    const Context c = contextOf();
    treeSum(c, deviceOf(c).compute, parts.data(), ranks, sums.data(), elements, dtype);
    for (std::int64_t i = 0; i < elements; ++i) {
      std::vector<float> column;
      for (int rank = 0; rank < ranks; ++rank)
        column.push_back(static_cast<float>(parts[static_cast<std::size_t>(rank * elements + i)]));
      ASSERT_EQ(sums[static_cast<std::size_t>(i)].bits, Half(treeSumOf(column, 0, column.size())).bits)
          << ranks << " ranks";
    }
  }
}

TEST(TreeSum, Of16BitsIsAddedInFloatAndRoundedOnce) {
  checkHalves<Bfloat16>(DType::bf16);
  checkHalves<Float16>(DType::f16);
}

TEST(TreeSum, OfATypeThatHasNoSumIsOurMistake) {
  const Context c = contextOf();
  std::vector<float> values(4);
  EXPECT_THROW(treeSum(c, deviceOf(c).compute, values.data(), 2, values.data(), 2, DType::boolean), Failure);
}

} // namespace
} // namespace fsdpc::rt
