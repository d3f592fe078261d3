// scatter_nd, top_k.
#include "tests/unit/gradient_check.h"

#include <cmath>

namespace fsdpc {
namespace {

using Values = std::vector<double>;
using Results = llvm::SmallVector<Value *, 4>;

BuildFunction scatter(const std::string &reduction, int64_t batchDims = 0) {
  return [=](Builder &b, llvm::ArrayRef<Value *> x) {
    return Results{b.create(Op::scatterNd, x, ScatterNdAttributes{batchDims, reduction})->result()};
  };
}

/// Values and indices. Gradient checks ignore the indices.
BuildFunction topK(int64_t k, bool smallest) {
  return [=](Builder &b, llvm::ArrayRef<Value *> x) {
    Node *node = b.create(Op::topK, x, TopKAttributes{k, smallest});
    return Results{node->result(0), node->result(1)};
  };
}

HostTensor floats(Shape shape, Values values) { return tensorOf(Type(DType::f32, shape), std::move(values)); }
HostTensor integers(Shape shape, Values values) { return tensorOf(Type(DType::i64, shape), std::move(values)); }
GradientInput input(Shape shape, Values values = {}) { return {Type(DType::f32, shape), -1, 1, std::move(values)}; }
GradientInput indices(Shape shape, Values values) { return {Type(DType::i64, shape), 0, 0, std::move(values)}; }

Values scattered(const std::string &reduction, const std::vector<HostTensor> &inputs, int64_t batchDims = 0) {
  return valuesOf(inputs, scatter(reduction, batchDims))[0].values;
}

OP_TEST(scatterNd, TheLastUpdateOfARowStaysAndIndicesCountFromTheEnd) {
  HostTensor x = floats({3, 2}, {1, 2, 3, 4, 5, 6}), updates = floats({3, 2}, {10, 11, 20, 21, 30, 31});
  EXPECT_EQ(scattered("none", {x, integers({3, 1}, {0, -1, 0}), updates}), (Values{30, 31, 3, 4, 20, 21}));
  EXPECT_EQ(scattered("none", {x, integers({2, 2}, {1, -1, 2, 0}), floats({2}, {7, 8})}), (Values{1, 2, 3, 7, 8, 6}));
  EXPECT_EQ(scattered("none", {x, integers({2, 1}, {3, 1}), floats({2, 2}, {7, 8, 9, 9})}), (Values{1, 2, 9, 9, 5, 6}))
      << "updates outside are dropped";
}

OP_TEST(scatterNd, ReducesInTheOrderOfTheTuples) {
  std::vector<HostTensor> inputs = {floats({3}, {2, 3, 4}), integers({4, 1}, {0, 2, 0, 2}), floats({4}, {5, 6, -7, 1})};
  EXPECT_EQ(scattered("add", inputs), (Values{0, 3, 11}));
  EXPECT_EQ(scattered("mul", inputs), (Values{-70, 3, 24}));
  EXPECT_EQ(scattered("max", inputs), (Values{5, 3, 6}));
  EXPECT_EQ(scattered("min", inputs), (Values{-7, 3, 1}));
  inputs[2].values[1] = NAN;
  EXPECT_TRUE(std::isnan(scattered("max", inputs)[2]) && std::isnan(scattered("min", inputs)[2]));
}

OP_TEST(scatterNd, BatchesHaveTuplesOfTheirOwn) {
  HostTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(scattered("add", {x, integers({2, 2, 1}, {0, 0, 2, 1}), floats({2, 2}, {10, 20, 30, 40})}, 1),
            (Values{31, 2, 3, 4, 45, 36}));
}

OP_TEST(scatterNd, HasADerivativeForEachReduction) {
  for (const char *reduction : {"none", "add", "mul", "max", "min"}) {
    checkGradients({.inputs = {input({4, 2}), indices({2, 1}, {-1, 1}), input({2, 2})}, .build = scatter(reduction)});
    checkGradients({.inputs = {input({2, 3, 2}), indices({2, 2, 1}, {0, 2, 1, -3}), input({2, 2, 2})},
                    .build = scatter(reduction, 1)});
  }
  for (const char *reduction : {"add", "mul", "max", "min"})
    checkGradients({.inputs = {input({3, 2}), indices({4, 2}, {0, 1, 2, 0, 0, -1, 0, 1}), input({4})},
                    .build = scatter(reduction)});
}

OP_TEST(scatterNd, TheDerivativeOfAProductIsExactAtZeros) {
  checkGradients({.inputs = {input({3}, {0, 2, 3}), indices({4, 1}, {0, 1, 1, 2}), input({4}, {5, 0, 7, 0.5})},
                  .build = scatter("mul")});
  checkGradients(
      {.inputs = {input({2}, {0, 4}), indices({3, 1}, {0, 0, 1}), input({3}, {0, 7, 3})}, .build = scatter("mul")});
}

OP_TEST(scatterNd, ReplacedElementsGetNoCotangentAndTiesShareOne) {
  std::vector<HostTensor> inputs = {floats({3}, {5, 3, 1}), integers({3, 1}, {0, 0, 2}), floats({3}, {5, 2, 4})};
  std::vector<HostTensor> replaced = gradientsOf(inputs, scatter("none"));
  EXPECT_EQ(replaced[0].values, (Values{0, 1, 0}));
  EXPECT_EQ(replaced[2].values, (Values{1, 1, 1})) << "torch's rule: also an update that another one replaced";
  std::vector<HostTensor> largest = gradientsOf(inputs, scatter("max"));
  EXPECT_EQ(largest[0].values, (Values{0.5, 1, 0}));
  EXPECT_EQ(largest[2].values, (Values{0.5, 0, 1}));
}

OP_TEST(gatherNd, OfManyBatchesAddsUpTheCotangentsOfEach) {
  checkGradients({.inputs = {input({3, 4, 2}), indices({3, 3, 1}, {0, 0, -1, 2, 1, 2, 3, 3, 3})},
                  .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                    return Results{b.create(Op::gatherNd, x, GatherNdAttributes{1})->result()};
                  }});
}

TEST(ScatterNd, ItsShapeRule) {
  Type x(DType::f32, {3, 2}), tuples(DType::i64, {2, 1});
  auto message = [&](const Type &indices, const Type &updates, ScatterNdAttributes own) {
    return inferMessage(Op::scatterNd, {x, indices, updates}, std::move(own));
  };
  EXPECT_EQ(message(Type(DType::f32, {2, 1}), x, {}), "scatter_nd: (C1) operand 1 is not i64 or i32: f32[2,1]");
  EXPECT_EQ(message(tuples, x, {1, "none"}),
            "scatter_nd: (C2) f32[3,2] and i64[2,1] do not share 1 leading dims and more");
  EXPECT_EQ(message(Type(DType::i64, {3}), x, {}), "scatter_nd: (C3) the last dim of i64[3] must be 1 to 2");
  EXPECT_EQ(message(tuples, x, {}), "scatter_nd: (C4) updates must be f32[2,2], but are f32[3,2]");
  EXPECT_EQ(message(tuples, Type(DType::f32, {2, 2}), {0, "mean"}), "scatter_nd: (C5) no reduction is called 'mean'");
  Type flags(DType::boolean, {3});
  EXPECT_EQ(inferMessage(Op::scatterNd, {flags, tuples, Type(DType::boolean, {2})}, ScatterNdAttributes{0, "add"}),
            "scatter_nd: (C5) elements must be numbers: bool[3]");
}

OP_TEST(topK, EqualElementsKeepTheirOrderAndNaNIsTheLargest) {
  HostTensor x = floats({2, 5}, {3, 1, 3, NAN, 2, -1, -1, -1, -1, -1});
  std::vector<HostTensor> largest = valuesOf({x}, topK(3, false));
  EXPECT_TRUE(std::isnan(largest[0].values[0]));
  EXPECT_EQ(largest[0].type, Type(DType::f32, {2, 3}));
  EXPECT_EQ(largest[1].values, (Values{3, 0, 2, 0, 1, 2}));
  std::vector<HostTensor> smallest = valuesOf({x}, topK(4, true));
  EXPECT_EQ(smallest[1].type, Type(DType::i64, {2, 4}));
  EXPECT_EQ(smallest[1].values, (Values{1, 4, 0, 2, 0, 1, 2, 3}));
  EXPECT_EQ(Values(smallest[0].values.begin(), smallest[0].values.begin() + 4), (Values{1, 2, 3, 3}));
}

OP_TEST(topK, CotangentsGoBackToWhereTheValuesWere) {
  for (bool smallest : {false, true})
    checkGradients({.inputs = {input({2, 2, 5})}, .build = topK(3, smallest)});
  checkGradients({.inputs = {input({4})}, .build = topK(4, true)});
}

TEST(TopK, ItsShapeRule) {
  EXPECT_EQ(inferMessage(Op::topK, {Type(DType::f32, {})}, TopKAttributes{1}),
            "top_k: (C1) x must be numbers with an axis: f32[]");
  EXPECT_EQ(inferMessage(Op::topK, {Type(DType::f32, {2, 3})}, TopKAttributes{4}),
            "top_k: (C2) k is 4, the last axis of f32[2,3] has 3 elements");
}

} // namespace
} // namespace fsdpc
