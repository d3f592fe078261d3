// rotary: values by hand, against its decomposed form, derivative, constraints.
#include "tests/unit/gradient_check.h"
#include "gmock/gmock.h"

namespace fsdpc {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

Type f32(llvm::ArrayRef<int64_t> shape) { return Type(DType::f32, shape); }

auto near(std::vector<double> expected) { return Pointwise(DoubleNear(1e-12), std::move(expected)); }

BuildFunction rotate(bool transposed = false) {
  return [transposed](Builder &builder, llvm::ArrayRef<Value *> inputs) -> llvm::SmallVector<Value *, 4> {
    return {builder.create(Op::rotary, inputs, RotaryAttributes{transposed})->result()};
  };
}

OP_TEST(rotary, TurnsPairsHalfAVectorApart) {
  // Rotates pair (1, 3) by a quarter turn and pair (2, 4) by a half turn.
  std::vector<HostTensor> inputs = {tensorOf(f32({1, 4}), {1, 2, 3, 4}), tensorOf(f32({4}), {0, -1, 0, -1}),
                                    tensorOf(f32({4}), {1, 0, 1, 0})};
  EXPECT_THAT(valuesOf(inputs, rotate())[0].values, near({-3, -2, 1, -4}));
  EXPECT_THAT(valuesOf(inputs, rotate(true))[0].values, near({3, -2, -1, -4}));
}

OP_TEST(rotary, TransposedOfTablesWithUnequalHalves) {
  // R = [[2, -3], [7, 5]]
  std::vector<HostTensor> inputs = {tensorOf(f32({2, 2}), {1, 0, 0, 1}), tensorOf(f32({2}), {2, 5}),
                                    tensorOf(f32({2}), {3, 7})};
  EXPECT_THAT(valuesOf(inputs, rotate())[0].values, near({2, 7, -3, 5}));
  EXPECT_THAT(valuesOf(inputs, rotate(true))[0].values, near({2, -3, 7, 5}));
}

HostTensor sampled(Type type, int64_t seed) {
  HostTensor tensor(std::move(type));
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = static_cast<double>((static_cast<int64_t>(i) * 31 + seed) % 17 - 8) / 9;
  return tensor;
}

/// x * cos + (-second half, first half) * sin
llvm::SmallVector<Value *, 4> decomposed(Builder &builder, llvm::ArrayRef<Value *> inputs) {
  Value *x = inputs[0];
  Shape starts(x->type().rank(), 0), sizes(x->type().shape()), steps(x->type().rank(), 1);
  sizes.back() /= 2;
  Value *first = builder.create(Op::slice, {x}, SliceAttributes{starts, sizes, steps})->result();
  starts.back() = sizes.back();
  Value *second = builder.create(Op::slice, {x}, SliceAttributes{starts, sizes, steps})->result();
  Value *turned =
      builder.create(Op::concat, {builder.unary(Op::neg, second), first}, AxisAttributes{x->type().rank() - 1})
          ->result();
  auto wide = [&](Value *table) { return builder.broadcast(table, x->type().shape()); };
  return {builder.add(builder.mul(x, wide(inputs[1])), builder.mul(turned, wide(inputs[2])))};
}

OP_TEST(rotary, EqualsItsDecomposedFormForEveryTableShape) {
  for (const Shape &table : {Shape{6}, Shape{4, 6}, Shape{4, 1, 6}, Shape{2, 1, 1, 6}, Shape{2, 4, 3, 6}}) {
    std::vector<HostTensor> inputs = {sampled(f32({2, 4, 3, 6}), 1), sampled(f32(table), 2), sampled(f32(table), 3)};
    if (table.size() == 2)
      inputs[0] = sampled(f32({2, 3, 4, 6}), 1);
    EXPECT_THAT(valuesOf(inputs, rotate())[0].values, near(valuesOf(inputs, decomposed)[0].values));
  }
}

OP_TEST(rotary, HasTheDerivative) {
  GradientInput table{f32({3, 4}), -1, 1, {}, false}, perSample{f32({2, 1, 1, 4}), -1, 1, {}, false};
  for (bool transposed : {false, true}) {
    checkGradients({.inputs = {{f32({2, 5, 3, 4})}, table, table}, .build = rotate(transposed)});
    checkGradients({.inputs = {{f32({2, 3, 2, 4})}, perSample, perSample}, .build = rotate(transposed)});
  }
}

OP_TEST(rotary, OfNoVectorsIsEmpty) {
  EXPECT_EQ(valuesOf({HostTensor(f32({0, 4})), HostTensor(f32({4})), HostTensor(f32({4}))}, rotate())[0].type,
            f32({0, 4}));
}

TEST(RotaryConstraints, AreReportedByLabel) {
  auto message = [](Type x, Type cos, Type sin) {
    return inferMessage(Op::rotary, {std::move(x), std::move(cos), std::move(sin)}, RotaryAttributes{});
  };
  Type good = f32({2, 3, 5, 4}), table = f32({5, 4});
  EXPECT_EQ(message(good, table, table), "");
  EXPECT_THAT(message(Type(DType::i64, {2, 4}), table, table), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({5, 3}), f32({5, 3}), f32({5, 3})), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({}), table, table), HasSubstr("(C1)"));
  EXPECT_THAT(message(f32({1, 2, 3, 5, 4}), table, table), HasSubstr("(C1)"));
  EXPECT_THAT(message(good, table, f32({4})), HasSubstr("(C2)"));
  EXPECT_THAT(message(good, f32({5, 1}), f32({5, 1})), HasSubstr("(C3)"));
  EXPECT_THAT(message(good, f32({2, 4}), f32({2, 4})), HasSubstr("(C3)"));
  EXPECT_THAT(message(good, f32({}), f32({})), HasSubstr("(C3)"));
  EXPECT_THAT(message(good, Type(DType::bf16, {5, 4}), Type(DType::bf16, {5, 4})), HasSubstr("(C3)"));
}

} // namespace
} // namespace fsdpc
