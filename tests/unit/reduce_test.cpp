// reduce_sum, reduce_max, reduce_min, reduce_prod, arg_max.
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

Values apply(Op op, const HostTensor &x, ReduceAttributes attributes) {
  return valuesOf({x}, one(op, attributes))[0].values;
}

const HostTensor matrix = tensorOf(Type(DType::f32, {2, 3}), {1, 5, 3, 4, 2, 6});

void checkReductionGradient(Op op, double low = -1, double high = 1) {
  for (bool keepDims : {false, true})
    for (const Shape &axes : {Shape{0}, Shape{2}, Shape{0, 2}, Shape{0, 1, 2}, Shape{}})
      checkGradients(
          {.inputs = {{Type(DType::f32, {3, 1, 5}), low, high}}, .build = one(op, ReduceAttributes{axes, keepDims})});
  // The result is used together with the operand.
  checkGradients(
      {.inputs = {{Type(DType::f32, {2, 3}), low, high}}, .build = [op](Builder &b, llvm::ArrayRef<Value *> x) {
         Value *reduced = b.create(op, {x[0]}, ReduceAttributes{{1}, true})->result();
         return Results{b.mul(x[0], b.broadcast(reduced, {2, 3}))};
       }});
}

OP_TEST(reduceSum, SumsOverAxes) {
  EXPECT_EQ(apply(Op::reduceSum, matrix, {{0}, false}), (Values{5, 7, 9}));
  EXPECT_EQ(apply(Op::reduceSum, matrix, {{1}, true}), (Values{9, 12}));
  EXPECT_EQ(apply(Op::reduceSum, matrix, {{0, 1}, false}), (Values{21}));
  EXPECT_EQ(apply(Op::reduceSum, matrix, {{}, false}), matrix.values);
  EXPECT_EQ(apply(Op::reduceSum, HostTensor(Type(DType::f32, {0, 2})), {{0}, false}), (Values{0, 0}));
  checkReductionGradient(Op::reduceSum);
}

TEST(Reduce, ItsShapeRule) {
  auto attributes = [](Shape axes) {
    return std::make_unique<Attributes<ReduceAttributes>>(ReduceAttributes{axes, true});
  };
  EXPECT_EQ(inferredTypes(Op::reduceSum, {matrix.type}, attributes({1}))[0], Type(DType::f32, {2, 1}));
  EXPECT_EQ(inferMessage(Op::reduceSum, {matrix.type}, attributes({2})), "reduce_sum: (C1) axis 2 is outside rank 2");
  EXPECT_EQ(inferMessage(Op::reduceSum, {matrix.type}, attributes({1, 0})),
            "reduce_sum: (C1) axes [1,0] do not ascend");
  EXPECT_EQ(inferMessage(Op::reduceSum, {matrix.type}, attributes({0, 0})),
            "reduce_sum: (C1) axes [0,0] do not ascend");
  EXPECT_EQ(inferMessage(Op::reduceSum, {Type(DType::boolean, {2})}, attributes({0})),
            "reduce_sum: (C2) elements must be numbers: bool[2]");
}

OP_TEST(reduceMax, SharesTheCotangentAmongTies) {
  EXPECT_EQ(apply(Op::reduceMax, matrix, {{1}, false}), (Values{5, 6}));
  HostTensor tied = tensorOf(Type(DType::f32, {4}), {2, 1, 2, 0});
  EXPECT_EQ(gradientsOf({tied}, one(Op::reduceMax, ReduceAttributes{{0}, false}))[0].values, (Values{0.5, 0, 0.5, 0}));
  checkReductionGradient(Op::reduceMax);
  EXPECT_TRUE(std::isnan(apply(Op::reduceMax, tensorOf(Type(DType::f32, {2}), {NAN, 1}), {{0}, false})[0]));
  EXPECT_EQ(inferMessage(Op::reduceMax, {Type(DType::f32, {2, 0})}, ReduceAttributes{{1}, false}),
            "reduce_max: (C3) axis 1 of f32[2,0] is empty");
}

OP_TEST(reduceMin, SharesTheCotangentAmongTies) {
  EXPECT_EQ(apply(Op::reduceMin, matrix, {{0}, false}), (Values{1, 2, 3}));
  HostTensor tied = tensorOf(Type(DType::f32, {4}), {0, 1, 0, 0});
  EXPECT_EQ(gradientsOf({tied}, one(Op::reduceMin, ReduceAttributes{{0}, false}))[0].values,
            (Values{1.0 / 3, 0, 1.0 / 3, 1.0 / 3}));
  checkReductionGradient(Op::reduceMin);
}

OP_TEST(reduceProd, HasAnExactDerivativeAtZeros) {
  EXPECT_EQ(apply(Op::reduceProd, matrix, {{1}, false}), (Values{15, 48}));
  EXPECT_EQ(apply(Op::reduceProd, HostTensor(Type(DType::f32, {0})), {{0}, false}), (Values{1}));
  checkReductionGradient(Op::reduceProd, 0.5, 2);
  HostTensor zeros = tensorOf(Type(DType::f32, {3, 3}), {2, 3, 4, 2, 0, 4, 0, 0, 4});
  EXPECT_EQ(gradientsOf({zeros}, one(Op::reduceProd, ReduceAttributes{{1}, false}))[0].values,
            (Values{12, 8, 6, 0, 8, 0, 0, 0, 0}));
}

OP_TEST(argMax, TheFirstMaximumWins) {
  HostTensor x = tensorOf(Type(DType::f32, {2, 3}), {1, 5, 5, 7, 7, 2});
  std::vector<HostTensor> found = valuesOf({x}, one(Op::argMax, AxisAttributes{1}));
  EXPECT_EQ(found[0].type, Type(DType::i64, {2}));
  EXPECT_EQ(found[0].values, (Values{1, 0}));
  EXPECT_EQ(valuesOf({x}, one(Op::argMax, AxisAttributes{0}))[0].values, (Values{1, 1, 0}));
  EXPECT_EQ(inferMessage(Op::argMax, {x.type}, AxisAttributes{2}), "arg_max: (C1) axis 2 is outside rank 2");
  EXPECT_EQ(inferMessage(Op::argMax, {Type(DType::f32, {0})}, AxisAttributes{0}),
            "arg_max: (C2) axis 0 of f32[0] is empty");
}

} // namespace
} // namespace fsdpc
