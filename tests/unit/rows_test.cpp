// gather_rows and scatter_rows on several ranks of the evaluator: answers, the order of sums, constraints, costs.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"

#include <cmath>

namespace fsdpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }
Type i64(llvm::ArrayRef<int64_t> shape) { return Type(DType::i64, shape); }

RowsAttributes table(int64_t ranks, int64_t rows, int64_t width, int64_t padded) {
  return {{"shard"}, ranks, rows, width, padded, false};
}

BuildFunction of(Op op, const RowsAttributes &attributes) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(op, inputs, attributes)->result()};
  };
}

OP_TEST(gatherRows, AnswersForTheRowsOfItsShardAndWithMinusZeroForOthers) {
  const HostTensor indices = tensorOf(i64({4}), {2, 0, -1, 1}); // two from each rank; -1 is row 2
  auto results =
      valuesOnRanks({{tensorOf(f32({4}), {1, 2, 3, 4}), indices}, {tensorOf(f32({4}), {5, 6, 0, 0}), indices}},
                    of(Op::gatherRows, table(2, 3, 2, 8)));
  EXPECT_THAT(results[0][0].values, ElementsAre(0, 0, 1, 2, 0, 0, 3, 4));
  EXPECT_THAT(results[1][0].values, ElementsAre(5, 6, 0, 0, 5, 6, 0, 0));
  EXPECT_TRUE(std::signbit(results[0][0].values[0]) && std::signbit(results[1][0].values[7]));
}

OP_TEST(gatherRows, ARowThatDoesNotExistIsNaN) {
  auto results =
      valuesOnRanks({{tensorOf(f32({2}), {1, 2}), tensorOf(i64({2}), {2, -3})}}, of(Op::gatherRows, table(1, 2, 1, 2)));
  EXPECT_TRUE(std::isnan(results[0][0].values[0]) && std::isnan(results[0][0].values[1]));
}

OP_TEST(scatterRows, AddsTheUpdatesOfEachRankAndThenOverRanksAsATree) {
  // In f64, 1e16 + 1 = 1e16, so the order of the additions shows: ((1 + 1e16) + -1e16) + 1 per rank, and
  // (r0 + r1) + (r2 + r3) over ranks.
  auto sum = [](int64_t ranks, const std::vector<double> &updates) {
    const HostTensor indices =
        tensorOf(i64({static_cast<int64_t>(updates.size())}), std::vector<double>(updates.size()));
    const HostTensor rows = tensorOf(f32({static_cast<int64_t>(updates.size())}), updates);
    return valuesOnRanks(std::vector<std::vector<HostTensor>>(ranks, {indices, rows}),
                         of(Op::scatterRows, table(ranks, 1, 1, ranks)))[0][0]
        .values[0];
  };
  EXPECT_EQ(sum(1, {1, 1e16, -1e16, 1}), 1);
  EXPECT_EQ(sum(2, {1, 1e16, -1e16, 1}), 0);
  EXPECT_EQ(sum(4, {1, 1e16, -1e16, 1}), 0);
  EXPECT_EQ(sum(3, {1, 1e16, -1e16}), 0);
}

OP_TEST(scatterRows, LeavesRowsWithoutUpdatesAndThePaddingZero) {
  const HostTensor indices = tensorOf(i64({2}), {1, 9}); // there is no row 9
  const HostTensor updates = tensorOf(f32({2}), {4, 5});
  auto results = valuesOnRanks({{indices, updates}, {indices, updates}}, of(Op::scatterRows, table(2, 3, 1, 4)));
  EXPECT_THAT(results[0][0].values, ElementsAre(0, 4));
  EXPECT_THAT(results[1][0].values, ElementsAre(0, 0));
}

TEST(RowsConstraints, AreReportedByLabel) {
  const Type shard = f32({4}), indices = i64({4}), updates = f32({8});
  EXPECT_THAT(inferMessage(Op::gatherRows, {shard, indices}, table(2, 0, 2, 8)), HasSubstr("(C1)"));
  for (const RowsAttributes &wrong : {table(2, 5, 2, 8), table(3, 3, 2, 8), table(2, 3, 3, 10)})
    EXPECT_THAT(inferMessage(Op::gatherRows, {shard, indices}, wrong), HasSubstr("(C2)"));
  EXPECT_THAT(inferMessage(Op::gatherRows, {shard, f32({4})}, table(2, 3, 2, 8)), HasSubstr("(C3)"));
  EXPECT_THAT(inferMessage(Op::gatherRows, {shard, i64({3})}, table(2, 3, 2, 8)), HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::gatherRows, {shard, i64({2, 2})}, table(2, 3, 2, 8)), HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::gatherRows, {f32({6}), indices}, table(2, 3, 2, 8)), HasSubstr("(C5)"));
  EXPECT_THAT(inferMessage(Op::gatherRows, {indices, indices}, table(2, 3, 2, 8)), HasSubstr("(C5)"));
  EXPECT_THAT(inferMessage(Op::scatterRows, {indices, f32({7})}, table(2, 3, 2, 8)), HasSubstr("(C5)"));
  EXPECT_THAT(inferMessage(Op::gatherRows, {shard, i64({int64_t(1) << 61})}, table(2, 3, 2, 8)), HasSubstr("(C6)"));
  EXPECT_THAT(inferMessage(Op::scatterRows, {indices}, table(2, 3, 2, 8)), HasSubstr("(C0)"));
  RowsAttributes inF32 = table(2, 3, 2, 8);
  inF32.accumulateF32 = true;
  EXPECT_THAT(inferMessage(Op::scatterRows, {indices, updates}, inF32), HasSubstr("(C0)"));
  EXPECT_EQ(inferredTypes(Op::scatterRows, {indices, Type(DType::bf16, {8})},
                          std::make_unique<Attributes<RowsAttributes>>(inF32))[0],
            f32({4}));
}

TEST(RowsCosts, AnAnswerIsWrittenForEachIndexAndReadForARanksPart) {
  Module module;
  Function *function = module.addFunction(FunctionKind::microStep);
  Builder builder(*function);
  Value *shard = function->addArgument(ArgumentKind::input, "shard", f32({4}));
  Value *indices = function->addArgument(ArgumentKind::input, "indices", i64({4}));
  const Node *node = builder.create(Op::gatherRows, {shard, indices}, table(2, 3, 2, 8));
  EXPECT_EQ(infoOf(*node).cost(*node).bytesWritten, 4 * 2 * 4);
  EXPECT_EQ(infoOf(*node).cost(*node).bytesRead, 2 * 2 * 4 + 4 * 8);
}

} // namespace
} // namespace fsdpc
