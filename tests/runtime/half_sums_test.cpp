// Sums of 16-bit elements over ranks equal the tree sum of the definition in float, rounded once.
#include "runtime/common/float16.h"
#include "runtime/cpu/tree_sum.h"
#include "tests/runtime/tree_sum_definition.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace fsdpc::rt {
namespace {

template <class Half>
void checkSums(DType dtype) {
  for (int count = 1; count <= 9; ++count) {
    std::mt19937 random(static_cast<unsigned>(count));
    std::normal_distribution<float> normal;
    std::vector<std::vector<Half>> parts(static_cast<std::size_t>(count), std::vector<Half>(1100));
    std::vector<const std::byte *> sources;
    for (std::vector<Half> &part : parts) {
      for (Half &value : part)
        value = Half(normal(random));
      sources.push_back(reinterpret_cast<const std::byte *>(part.data()));
    }
    std::vector<Half> expected(1100), actual(1100);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::vector<float> summands;
      for (const std::vector<Half> &part : parts)
        summands.push_back(static_cast<float>(part[i]));
      expected[i] = Half(test::treeSumOf(summands, 0, summands.size()));
    }
    treeSum(sources.data(), count, actual.data(), 1100, dtype);
    // In place, as in an all_reduce.
    treeSum(sources.data(), count, parts.back().data(), 1100, dtype);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i].bits, expected[i].bits) << count << " ranks, element " << i;
      ASSERT_EQ(parts.back()[i].bits, expected[i].bits) << count << " ranks in place, element " << i;
    }
  }
}

TEST(HalfSums, AreTheTreeInFloatRoundedOnce) {
  checkSums<Bfloat16>(DType::bf16);
  checkSums<Float16>(DType::f16);
}

} // namespace
} // namespace fsdpc::rt
