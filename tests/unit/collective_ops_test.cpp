// Collectives on several ranks of the evaluator: delivered values, order of summation, the derivative over ranks,
// constraints.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"

namespace fsdpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }

CollectiveAttributes over(int64_t ranks, int64_t id = 0) { return {{"shard"}, ranks, id}; }

BuildFunction collective(Op op, int64_t ranks) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(op, inputs, over(ranks))->result()};
  };
}

/// A start and its wait.
BuildFunction startAndWait(Op op, int64_t ranks) {
  return [=](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *future = builder.create(op, inputs, over(ranks))->result();
    EXPECT_TRUE(future->type().isFuture());
    return {builder.create(Op::wait, {future})->result()};
  };
}

BuildFunction batchSumOf() {
  return [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.unary(Op::batchSum, inputs[0])};
  };
}

/// The only result of every rank. Its only input is the row of that rank.
std::vector<std::vector<double>> onRanks(const BuildFunction &build, const std::vector<std::vector<double>> &rows) {
  std::vector<std::vector<HostTensor>> inputs;
  for (const std::vector<double> &row : rows)
    inputs.push_back({tensorOf(f32({static_cast<int64_t>(row.size())}), row)});
  std::vector<std::vector<double>> results;
  for (const std::vector<HostTensor> &rank : valuesOnRanks(inputs, build))
    results.push_back(rank[0].values);
  return results;
}

const std::vector<std::vector<double>> threeRows = {{1, 2, 3}, {10, 20, 30}, {100, 200, 300}};

OP_TEST(allGather, DeliversAllShardsInRankOrderToEveryRank) {
  std::vector<std::vector<double>> results = onRanks(collective(Op::allGather, 3), threeRows);
  for (const std::vector<double> &result : results)
    EXPECT_THAT(result, ElementsAre(1, 2, 3, 10, 20, 30, 100, 200, 300));
}

OP_TEST(reduceScatter, DeliversEachRanksShareOfTheSum) {
  EXPECT_THAT(onRanks(collective(Op::reduceScatter, 3), threeRows),
              ElementsAre(ElementsAre(111), ElementsAre(222), ElementsAre(333)));
}

OP_TEST(allReduce, DeliversTheSumToEveryRank) {
  for (const std::vector<double> &result : onRanks(collective(Op::allReduce, 3), threeRows))
    EXPECT_THAT(result, ElementsAre(111, 222, 333));
}

/// Four ranks, in pairs.
CollectiveAttributes overPairs(llvm::StringRef axis) { return {{axis.str()}, 2, 0}; }

std::vector<std::vector<double>> inPairs(Op op, llvm::StringRef axis, const std::vector<std::vector<double>> &rows) {
  std::vector<std::vector<HostTensor>> inputs;
  for (const std::vector<double> &row : rows)
    inputs.push_back({tensorOf(f32({static_cast<int64_t>(row.size())}), row)});
  auto build = [&](Builder &builder, llvm::ArrayRef<Value *> operands) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(op, operands, overPairs(axis))->result()};
  };
  std::vector<std::vector<double>> results;
  std::vector<MeshAxis> mesh = {{"shard", 2}, {"replicate", 2, 2}};
  for (const std::vector<HostTensor> &rank : valuesOnRanks(inputs, build, mesh))
    results.push_back(rank[0].values);
  return results;
}

OP_TEST(allGather, StaysInItsGroup) {
  std::vector<std::vector<double>> rows = {{1}, {2}, {3}, {4}};
  EXPECT_THAT(inPairs(Op::allGather, "shard", rows),
              ElementsAre(ElementsAre(1, 2), ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(3, 4)));
  EXPECT_THAT(inPairs(Op::allGather, "replicate", rows),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4), ElementsAre(1, 3), ElementsAre(2, 4)));
}

OP_TEST(reduceScatter, StaysInItsGroup) {
  std::vector<std::vector<double>> rows = {{1, 2}, {10, 20}, {3, 4}, {30, 40}};
  EXPECT_THAT(inPairs(Op::reduceScatter, "shard", rows),
              ElementsAre(ElementsAre(11), ElementsAre(22), ElementsAre(33), ElementsAre(44)));
  EXPECT_THAT(inPairs(Op::allReduce, "replicate", rows),
              ElementsAre(ElementsAre(4, 6), ElementsAre(40, 60), ElementsAre(4, 6), ElementsAre(40, 60)));
}

OP_TEST(takeShard, IsTheShareThatAGatherPutsTogetherAgain) {
  std::vector<std::vector<double>> rows(4, {1, 2, 3, 4});
  EXPECT_THAT(inPairs(Op::takeShard, "shard", rows),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(inPairs(Op::takeShard, "replicate", rows),
              ElementsAre(ElementsAre(1, 2), ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(3, 4)));
}

TEST(TakeShard, QuotesItsConstraints) {
  EXPECT_THAT(inferMessage(Op::takeShard, {f32({5})}, overPairs("shard")), HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::takeShard, {f32({2, 2})}, overPairs("shard")), HasSubstr("(C2)"));
}

OP_TEST(allReduce, AddsUpInABalancedTreeInRankOrder) {
  // In f64, 1e16 + 1 = 1e16, so the order of the additions shows.
  auto sum = [](const std::vector<std::vector<double>> &rows) {
    return onRanks(collective(Op::allReduce, static_cast<int64_t>(rows.size())), rows)[0][0];
  };
  EXPECT_EQ(sum({{1}, {1e16}, {-1e16}}), 0);                // (r0 + r1) + r2
  EXPECT_EQ(sum({{1}, {1e16}, {-1e16}, {1}}), 0);           // (r0 + r1) + (r2 + r3)
  EXPECT_EQ(sum({{1e16}, {-1e16}, {1}, {0}, {1}}), 2);      // ((r0 + r1) + (r2 + r3)) + r4
  EXPECT_EQ(sum({{0}, {0}, {0}, {1}, {1e16}, {-1e16}}), 1); // ((r0 + r1) + (r2 + r3)) + (r4 + r5)
}

OP_TEST(batchSum, IsTheSumOverAllRanksOnEachOfThem) {
  for (const std::vector<double> &result : onRanks(batchSumOf(), threeRows))
    EXPECT_THAT(result, ElementsAre(111, 222, 333));
  EXPECT_THAT(onRanks(batchSumOf(), {{1, 2}}), ElementsAre(ElementsAre(1, 2)));
}

OP_TEST(batchSum, AddsUpIntegers) {
  Type i64(DType::i64, {1});
  std::vector<std::vector<HostTensor>> results =
      valuesOnRanks({{tensorOf(i64, {3})}, {tensorOf(i64, {4})}}, batchSumOf());
  EXPECT_EQ(results[1][0].type, i64);
  EXPECT_THAT(results[1][0].values, ElementsAre(7));
}

OP_TEST(batchSum, HasTheDerivativeOfAllRanksLosses) {
  for (int64_t ranks : {1, 2, 3})
    checkGradients({.inputs = {{f32({2, 3})}}, .build = batchSumOf(), .ranks = ranks});
  // Nonlinear in both operands, as loss / count is.
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *sum = builder.unary(Op::batchSum, builder.mul(inputs[0], inputs[0]));
    return {builder.mul(sum, inputs[1]), inputs[0]};
  };
  checkGradients({.inputs = {{f32({3, 1})}, {f32({3, 1})}}, .build = build, .ranks = 3});
}

OP_TEST(allGatherStart, DeliversThroughItsWait) {
  for (const std::vector<double> &result : onRanks(startAndWait(Op::allGatherStart, 2), {{1, 2}, {3, 4}}))
    EXPECT_THAT(result, ElementsAre(1, 2, 3, 4));
}

OP_TEST(reduceScatterStart, DeliversThroughItsWait) {
  EXPECT_THAT(onRanks(startAndWait(Op::reduceScatterStart, 2), {{1, 2}, {3, 4}}),
              ElementsAre(ElementsAre(4), ElementsAre(6)));
}

OP_TEST(allReduceStart, DeliversThroughItsWait) {
  EXPECT_THAT(onRanks(startAndWait(Op::allReduceStart, 2), {{1, 2}, {3, 4}}),
              ElementsAre(ElementsAre(4, 6), ElementsAre(4, 6)));
}

/// A copy and its wait, on one rank.
std::vector<double> copied(Op op) {
  auto build = [op](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *future = builder.create(op, inputs)->result();
    EXPECT_TRUE(future->type().isFuture());
    return {builder.create(Op::wait, {future})->result()};
  };
  return onRanks(build, {{1, -2}})[0];
}

OP_TEST(offloadStart, DeliversItsOperand) { EXPECT_THAT(copied(Op::offloadStart), ElementsAre(1, -2)); }

OP_TEST(reloadStart, DeliversItsOperand) { EXPECT_THAT(copied(Op::reloadStart), ElementsAre(1, -2)); }

OP_TEST(wait, MayComeInAnotherOrderThanTheStarts) {
  auto build = [](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    Value *first = builder.create(Op::allGatherStart, {inputs[0]}, over(2, 0))->result();
    Value *second = builder.create(Op::allReduceStart, {inputs[0]}, over(2, 1))->result();
    Value *sum = builder.create(Op::wait, {second})->result();
    return {sum, builder.create(Op::wait, {first})->result()};
  };
  std::vector<std::vector<HostTensor>> results =
      valuesOnRanks({{tensorOf(f32({1}), {1})}, {tensorOf(f32({1}), {2})}}, build);
  EXPECT_THAT(results[0][0].values, ElementsAre(3));
  EXPECT_THAT(results[1][1].values, ElementsAre(1, 2));
}

TEST(CollectiveTypes, OfStartsAreFuturesOfWhatTheWaitDelivers) {
  auto delivered = [](Op op) {
    return inferredTypes(op, {f32({6})}, std::make_unique<Attributes<CollectiveAttributes>>(over(3)))[0];
  };
  EXPECT_EQ(delivered(Op::allGather), f32({18}));
  EXPECT_EQ(delivered(Op::reduceScatter), f32({2}));
  EXPECT_EQ(delivered(Op::allReduce), f32({6}));
  EXPECT_EQ(delivered(Op::allGatherStart), Type::future(f32({18})));
  EXPECT_EQ(delivered(Op::reduceScatterStart), Type::future(f32({2})));
  EXPECT_EQ(delivered(Op::allReduceStart), Type::future(f32({6})));
  EXPECT_EQ(inferredTypes(Op::wait, {Type::future(f32({6}))})[0], f32({6}));
}

TEST(CollectiveConstraints, AreReportedByLabel) {
  for (Op op : {Op::allGather, Op::reduceScatter, Op::allReduce, Op::allGatherStart, Op::reduceScatterStart,
                Op::allReduceStart}) {
    EXPECT_THAT(inferMessage(op, {f32({6})}, over(0)), HasSubstr("(C1)"));
    EXPECT_THAT(inferMessage(op, {f32({6}), f32({6})}, over(3)), HasSubstr("(C0)"));
    EXPECT_THAT(inferMessage(op, {Type::future(f32({6}))}, over(3)), HasSubstr("(C0)"));
  }
  for (Op op : {Op::allGather, Op::reduceScatter, Op::allGatherStart, Op::reduceScatterStart})
    EXPECT_THAT(inferMessage(op, {f32({2, 3})}, over(3)), HasSubstr("(C2)"));
  for (Op op : {Op::reduceScatter, Op::allReduce, Op::reduceScatterStart, Op::allReduceStart})
    EXPECT_THAT(inferMessage(op, {Type(DType::boolean, {6})}, over(3)), HasSubstr("(C3)"));
  EXPECT_THAT(inferMessage(Op::batchSum, {Type(DType::u8, {6})}), HasSubstr("(C3)"));
  for (Op op : {Op::reduceScatter, Op::reduceScatterStart})
    EXPECT_THAT(inferMessage(op, {f32({7})}, over(3)), HasSubstr("(C4)"));
  for (Op op : {Op::allGather, Op::allGatherStart})
    EXPECT_THAT(inferMessage(op, {f32({int64_t(1) << 60})}, over(16)), HasSubstr("(C4)"));
  EXPECT_THAT(inferMessage(Op::wait, {f32({6})}), HasSubstr("(C1)"));
  EXPECT_THAT(inferMessage(Op::wait, {}), HasSubstr("(C1)"));
}

TEST(CollectiveCosts, CountWhatARankReads) {
  Module module;
  Function *function = module.addFunction(FunctionKind::microStep);
  Builder builder(*function);
  Value *x = function->addArgument(ArgumentKind::input, "x", f32({6}));
  auto cost = [&](Op op) {
    Node *node = builder.create(op, {x}, over(3));
    return infoOf(*node).cost(*node);
  };
  EXPECT_EQ(cost(Op::allGather).bytesRead, 3 * 24);
  EXPECT_EQ(cost(Op::allGather).bytesWritten, 3 * 24);
  EXPECT_EQ(cost(Op::reduceScatter).bytesRead, 24);
  EXPECT_EQ(cost(Op::reduceScatter).flops, 2 * 2);
  EXPECT_EQ(cost(Op::allReduceStart).bytesRead, 3 * 24);
  EXPECT_EQ(cost(Op::allReduceStart).flops, 2 * 6);
}

} // namespace
} // namespace fsdpc
