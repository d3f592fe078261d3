// Which nodes a copy or a gather is given time beside.
#include "passes/support/section_runs.h"

#include "ir/builder.h"

#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::ElementsAre;

/// The runs of one node per section.
std::vector<size_t> unitRunsOf(llvm::ArrayRef<Section> sections) {
  Module module;
  for (const char *name : {"a", "b", "c"})
    module.addUnit({.name = name, .source = "test"});
  Function &step = *module.addFunction(FunctionKind::microStep);
  Builder builder(step);
  for (const Section &section : sections) {
    builder.setSection(section);
    builder.constant(Type(DType::f32, {}), 0);
  }
  const llvm::DenseMap<const Node *, size_t> runs = unitRuns(step);
  std::vector<size_t> numbers;
  for (const Node *node : step)
    numbers.push_back(runs.lookup(node));
  return numbers;
}

TEST(UnitRuns, JoinRecomputationAndTheBackwardBehindIt) {
  EXPECT_THAT(unitRunsOf({{0, Phase::forward},
                          {1, Phase::forward},
                          {1, Phase::recompute},
                          {1, Phase::backward},
                          {0, Phase::recompute},
                          {0, Phase::backward}}),
              ElementsAre(0, 1, 2, 2, 3, 3));
}

TEST(UnitRuns, GoOnBehindUpdatesOfOtherUnits) {
  EXPECT_THAT(
      unitRunsOf(
          {{1, Phase::backward}, {2, Phase::update}, {0, Phase::update}, {1, Phase::backward}, {0, Phase::backward}}),
      ElementsAre(0, 0, 0, 0, 1));
}

TEST(UnitRuns, AreTheUpdatesOwnBetweenTwoUnits) {
  EXPECT_THAT(unitRunsOf({{1, Phase::backward},
                          {2, Phase::update},
                          {2, Phase::update},
                          {0, Phase::backward},
                          {1, Phase::update},
                          {0, Phase::update}}),
              ElementsAre(0, 1, 1, 2, 3, 4));
  EXPECT_THAT(unitRunsOf({{1, Phase::update}, {0, Phase::update}}), ElementsAre(0, 1));
}

} // namespace
} // namespace fsdpc
