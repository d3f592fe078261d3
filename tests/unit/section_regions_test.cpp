// The nodes that a copy or a gather can overlap with.
#include "passes/support/section_regions.h"

#include "ir/builder.h"

#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::ElementsAre;

/// The region of every node, with one node per section.
std::vector<size_t> unitRegionsOf(llvm::ArrayRef<Section> sections) {
  Module module;
  for (const char *name : {"a", "b", "c"})
    module.addUnit({.name = name, .source = "test"});
  Function &step = *module.addFunction(FunctionKind::microStep);
  Builder builder(step);
  for (const Section &section : sections) {
    builder.setSection(section);
    builder.constant(Type(DType::f32, {}), 0);
  }
  const llvm::DenseMap<const Node *, size_t> runs = unitRegions(step);
  std::vector<size_t> numbers;
  for (const Node *node : step)
    numbers.push_back(runs.lookup(node));
  return numbers;
}

TEST(UnitRegions, JoinRecomputationAndTheBackwardBehindIt) {
  EXPECT_THAT(unitRegionsOf({{0, Phase::forward},
                             {1, Phase::forward},
                             {1, Phase::recompute},
                             {1, Phase::backward},
                             {0, Phase::recompute},
                             {0, Phase::backward}}),
              ElementsAre(0, 1, 2, 2, 3, 3));
}

TEST(UnitRegions, GoOnBehindUpdatesOfOtherUnits) {
  EXPECT_THAT(
      unitRegionsOf(
          {{1, Phase::backward}, {2, Phase::update}, {0, Phase::update}, {1, Phase::backward}, {0, Phase::backward}}),
      ElementsAre(0, 0, 0, 0, 1));
}

TEST(UnitRegions, AreTheUpdatesOwnBetweenTwoUnits) {
  EXPECT_THAT(unitRegionsOf({{1, Phase::backward},
                             {2, Phase::update},
                             {2, Phase::update},
                             {0, Phase::backward},
                             {1, Phase::update},
                             {0, Phase::update}}),
              ElementsAre(0, 1, 1, 2, 3, 4));
  EXPECT_THAT(unitRegionsOf({{1, Phase::update}, {0, Phase::update}}), ElementsAre(0, 1));
}

} // namespace
} // namespace fsdpc
