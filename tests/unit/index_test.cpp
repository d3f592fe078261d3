// gather, scatter_add, gather_nd, cumulative_sum.
#include "tests/unit/gradient_check.h"

#include <cmath>

namespace fsdpc {
namespace {

using Values = std::vector<double>;
using Results = llvm::SmallVector<Value *, 4>;

template <class A>
BuildFunction one(Op op, A attributes) {
  return [op, attributes](Builder &b, llvm::ArrayRef<Value *> x) {
    return Results{b.create(op, x, attributes)->result()};
  };
}

template <class A>
HostTensor apply(Op op, const std::vector<HostTensor> &inputs, A attributes) {
  return valuesOf(inputs, one(op, attributes))[0];
}

GradientInput floats(Shape shape) { return {Type(DType::f32, shape)}; }
GradientInput indices(Shape shape, Values values) { return {Type(DType::i64, shape), 0, 0, values}; }

const HostTensor matrix = tensorOf(Type(DType::f32, {3, 2}), {10, 11, 20, 21, 30, 31});

OP_TEST(gather, PicksRowsAndColumnsAndCountsNegativeIndicesFromTheEnd) {
  HostTensor picks = tensorOf(Type(DType::i64, {2, 2}), {2, 0, -1, -3});
  HostTensor rows = apply(Op::gather, {matrix, picks}, AxisAttributes{0});
  EXPECT_EQ(rows.type, Type(DType::f32, {2, 2, 2}));
  EXPECT_EQ(rows.values, (Values{30, 31, 10, 11, 30, 31, 10, 11}));
  HostTensor column = apply(Op::gather, {matrix, tensorOf(Type(DType::i32, {}), {1})}, AxisAttributes{1});
  EXPECT_EQ(column.type, Type(DType::f32, {3}));
  EXPECT_EQ(column.values, (Values{11, 21, 31}));
}

OP_TEST(gather, OfAnIndexOutsideGivesNotANumber) {
  HostTensor found = apply(Op::gather, {matrix, tensorOf(Type(DType::i64, {2}), {3, -4})}, AxisAttributes{0});
  for (double value : found.values)
    EXPECT_TRUE(std::isnan(value));
}

OP_TEST(gather, AddsUpTheCotangentsOfRowsPickedTwice) {
  checkGradients(
      {.inputs = {floats({5, 3}), indices({2, 2}, {1, 1, -1, 0})}, .build = one(Op::gather, AxisAttributes{0})});
  checkGradients(
      {.inputs = {floats({2, 5, 3}), indices({4}, {1, 4, 1, -2})}, .build = one(Op::gather, AxisAttributes{1})});
  checkGradients({.inputs = {floats({2, 3}), indices({}, {2})}, .build = one(Op::gather, AxisAttributes{1})});
}

TEST(Gather, ItsShapeRule) {
  EXPECT_EQ(inferMessage(Op::gather, {matrix.type, Type(DType::i64, {})}, AxisAttributes{2}),
            "gather: (C1) axis 2 is outside rank 2");
  EXPECT_EQ(inferMessage(Op::gather, {matrix.type, Type(DType::f32, {})}, AxisAttributes{0}),
            "gather: (C2) operand 1 is not i64 or i32: f32[]");
}

OP_TEST(scatterAdd, AddsUpdatesOfTheSameRow) {
  HostTensor picks = tensorOf(Type(DType::i64, {3}), {1, -1, 1});
  HostTensor found = apply(Op::scatterAdd, {picks, matrix}, ScatterAddAttributes{0, 4});
  EXPECT_EQ(found.values, (Values{0, 0, 40, 42, 0, 0, 20, 21}));
  HostTensor columns =
      apply(Op::scatterAdd, {tensorOf(Type(DType::i64, {2}), {2, 2}), matrix}, ScatterAddAttributes{1, 3});
  EXPECT_EQ(columns.values, (Values{0, 0, 21, 0, 0, 41, 0, 0, 61}));
  EXPECT_EQ(
      apply(Op::scatterAdd, {tensorOf(Type(DType::i64, {3}), {7, 0, -9}), matrix}, ScatterAddAttributes{0, 1}).values,
      (Values{20, 21}))
      << "updates outside are dropped";
}

OP_TEST(scatterAdd, ItsDerivativeIsTheGather) {
  checkGradients({.inputs = {indices({3}, {1, -1, 1}), floats({2, 3, 2})},
                  .build = one(Op::scatterAdd, ScatterAddAttributes{1, 4})});
}

TEST(ScatterAdd, ItsShapeRule) {
  EXPECT_EQ(inferMessage(Op::scatterAdd, {Type(DType::f32, {3}), matrix.type}, ScatterAddAttributes{0, 4}),
            "scatter_add: (C1) operand 0 is not i64 or i32: f32[3]");
  EXPECT_EQ(inferMessage(Op::scatterAdd, {Type(DType::i64, {4}), matrix.type}, ScatterAddAttributes{0, 4}),
            "scatter_add: (C2) the updates f32[3,2] have no dims [4] of the indices at axis 0");
  EXPECT_NE(inferMessage(Op::scatterAdd, {Type(DType::i64, {2}), matrix.type}, ScatterAddAttributes{2, 4}), "");
  EXPECT_NE(inferMessage(Op::scatterAdd, {Type(DType::i64, {3}), matrix.type}, ScatterAddAttributes{0, -4}), "");
}

OP_TEST(gatherNd, PicksElementsRowsAndPerBatch) {
  HostTensor tuples = tensorOf(Type(DType::i64, {2, 2}), {0, 1, -1, 0});
  EXPECT_EQ(apply(Op::gatherNd, {matrix, tuples}, GatherNdAttributes{0}).values, (Values{11, 30}));
  HostTensor rows = tensorOf(Type(DType::i64, {2, 1}), {2, 0});
  EXPECT_EQ(apply(Op::gatherNd, {matrix, rows}, GatherNdAttributes{0}).values, (Values{30, 31, 10, 11}));
  HostTensor perBatch = tensorOf(Type(DType::i64, {3, 1}), {1, 0, -1});
  EXPECT_EQ(apply(Op::gatherNd, {matrix, perBatch}, GatherNdAttributes{1}).values, (Values{11, 20, 31}));
}

OP_TEST(gatherNd, HasADerivative) {
  checkGradients({.inputs = {floats({3, 2}), indices({4, 2}, {0, 1, -1, 0, 0, 1, 2, -2})},
                  .build = one(Op::gatherNd, GatherNdAttributes{0})});
  checkGradients({.inputs = {floats({2, 3, 2, 5}), indices({2, 3, 1}, {1, 0, -1, 2, 2, 2})},
                  .build = one(Op::gatherNd, GatherNdAttributes{1})});
  checkGradients({.inputs = {floats({2, 1, 3, 2}), indices({2, 1, 2, 2}, {1, 0, -1, 1, 2, 1, 0, -2})},
                  .build = one(Op::gatherNd, GatherNdAttributes{2})});
}

TEST(GatherNd, ItsShapeRule) {
  EXPECT_EQ(inferMessage(Op::gatherNd, {matrix.type, Type(DType::f32, {1})}, GatherNdAttributes{0}),
            "gather_nd: (C1) operand 1 is not i64 or i32: f32[1]");
  EXPECT_EQ(inferMessage(Op::gatherNd, {matrix.type, Type(DType::i64, {2, 1})}, GatherNdAttributes{1}),
            "gather_nd: (C2) f32[3,2] and i64[2,1] do not share 1 leading dims and more");
  EXPECT_EQ(inferMessage(Op::gatherNd, {matrix.type, Type(DType::i64, {3})}, GatherNdAttributes{0}),
            "gather_nd: (C3) the last dim of i64[3] must be 1 to 2");
  EXPECT_NE(inferMessage(Op::gatherNd, {matrix.type, Type(DType::i64, {})}, GatherNdAttributes{0}), "");
}

OP_TEST(cumulativeSum, RunsBothWaysWithAndWithoutTheElement) {
  HostTensor x = tensorOf(Type(DType::f32, {4}), {1, 2, 3, 4});
  EXPECT_EQ(apply(Op::cumulativeSum, {x}, CumulativeSumAttributes{0}).values, (Values{1, 3, 6, 10}));
  EXPECT_EQ(apply(Op::cumulativeSum, {x}, CumulativeSumAttributes{0, true}).values, (Values{0, 1, 3, 6}));
  EXPECT_EQ(apply(Op::cumulativeSum, {x}, CumulativeSumAttributes{0, false, true}).values, (Values{10, 9, 7, 4}));
  EXPECT_EQ(apply(Op::cumulativeSum, {x}, CumulativeSumAttributes{0, true, true}).values, (Values{9, 7, 4, 0}));
  EXPECT_EQ(apply(Op::cumulativeSum, {matrix}, CumulativeSumAttributes{0}).values, (Values{10, 11, 30, 32, 60, 63}));
}

OP_TEST(cumulativeSum, ItsDerivativeRunsTheOtherWay) {
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true})
      checkGradients({.inputs = {floats({2, 5, 1})},
                      .build = one(Op::cumulativeSum, CumulativeSumAttributes{1, exclusive, reverse})});
}

TEST(CumulativeSum, ItsShapeRule) {
  EXPECT_EQ(inferMessage(Op::cumulativeSum, {matrix.type}, CumulativeSumAttributes{2}),
            "cumulative_sum: (C1) axis 2 is outside rank 2");
  EXPECT_EQ(inferMessage(Op::cumulativeSum, {Type(DType::boolean, {2})}, CumulativeSumAttributes{0}),
            "cumulative_sum: (C2) elements must be numbers: bool[2]");
}

} // namespace
} // namespace fsdpc
