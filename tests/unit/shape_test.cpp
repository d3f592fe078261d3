// constant, iota, broadcast, reshape, transpose, slice, pad, concat.
#include "tests/unit/gradient_check.h"

namespace fsdpc {
namespace {

using Values = std::vector<double>;
using Results = llvm::SmallVector<Value *, 4>;

/// 0, 1, 2, ... in this shape.
HostTensor counting(Shape shape, DType dtype = DType::f32) {
  HostTensor tensor(Type(dtype, shape));
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = static_cast<double>(i);
  return tensor;
}

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

template <class A>
void checkGradient(Op op, const std::vector<Shape> &shapes, A attributes) {
  GradientCase gradientCase{.build = one(op, attributes)};
  for (const Shape &shape : shapes)
    gradientCase.inputs.push_back({Type(DType::f32, shape)});
  checkGradients(gradientCase);
}

const Type x23(DType::f32, {2, 3});

// ---- constant, iota

OP_TEST(constant, IsASplatOrHasOneValuePerElement) {
  EXPECT_EQ(apply(Op::constant, {}, ConstantAttributes{Dense::splat(DType::f32, 2), {2, 2}}).values, Values(4, 2));
  EXPECT_EQ(apply(Op::constant, {}, ConstantAttributes{Dense::fromDoubles(DType::i64, {1, 2}), {2}}).values,
            (Values{1, 2}));
  EXPECT_EQ(inferMessage(Op::constant, {}, ConstantAttributes{Dense::fromDoubles(DType::i64, {1, 2}), {3}}),
            "constant: (C1) 2 values for i64[3]");
}

OP_TEST(iota, CountsAlongOneAxis) {
  EXPECT_EQ(apply(Op::iota, {}, IotaAttributes{DType::i64, {2, 3}, 1, 5, -2}).values, (Values{5, 3, 1, 5, 3, 1}));
  EXPECT_EQ(apply(Op::iota, {}, IotaAttributes{DType::f32, {2, 2}, 0, 0, 0.5}).values, (Values{0, 0, 0.5, 0.5}));
  EXPECT_EQ(inferMessage(Op::iota, {}, IotaAttributes{DType::i64, {2}, 1}), "iota: (C1) axis 1 is outside rank 1");
  EXPECT_EQ(inferMessage(Op::iota, {}, IotaAttributes{DType::boolean, {2}, 0}),
            "iota: (C2) elements must be numbers, not bool");
}

TEST(Shape, AResultWhoseBytesOverflowIsRefused) {
  EXPECT_NE(inferMessage(Op::iota, {}, IotaAttributes{DType::i64, {int64_t(1) << 31, int64_t(1) << 31}, 0}), "");
  EXPECT_NE(inferMessage(Op::iota, {}, IotaAttributes{DType::i64, {-1}, 0}), "");
}

// ---- broadcast, reshape, transpose

OP_TEST(broadcast, StretchesSizeOneAndNewLeadingAxes) {
  EXPECT_EQ(apply(Op::broadcast, {counting({2, 1})}, ShapeAttributes{{2, 2, 3}}).values,
            (Values{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
  for (const Shape &shape : {Shape{2, 1}, Shape{3}, Shape{}, Shape{1, 1}, Shape{1, 2, 3}})
    checkGradient(Op::broadcast, {shape}, ShapeAttributes{{5, 2, 3}});
  EXPECT_EQ(inferMessage(Op::broadcast, {x23}, ShapeAttributes{{2, 4}}),
            "broadcast: (C1) f32[2,3] does not broadcast to [2,4]");
  EXPECT_NE(inferMessage(Op::broadcast, {x23}, ShapeAttributes{{3}}), "");
}

OP_TEST(broadcast, OfAValueWithSeveralUsesSumsAllCotangents) {
  checkGradients({.inputs = {{Type(DType::f32, {1, 3})}}, .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                    Value *wide = b.broadcast(x[0], {4, 3});
                    return Results{b.mul(wide, b.broadcast(b.mul(x[0], x[0]), {4, 3})), wide};
                  }});
}

OP_TEST(reshape, KeepsTheOrderOfElements) {
  EXPECT_EQ(apply(Op::reshape, {counting({2, 3})}, ShapeAttributes{{3, 2}}).values, (Values{0, 1, 2, 3, 4, 5}));
  checkGradient(Op::reshape, {{2, 3}}, ShapeAttributes{{6, 1}});
  checkGradient(Op::reshape, {{1}}, ShapeAttributes{{}});
  EXPECT_EQ(inferMessage(Op::reshape, {x23}, ShapeAttributes{{5}}),
            "reshape: (C1) f32[2,3] has other elements than [5]");
}

OP_TEST(stopGradient, IsItsOperandAndPassesNoGradient) {
  auto timesItself = [](Builder &b, llvm::ArrayRef<Value *> x) {
    return Results{b.mul(x[0], b.create(Op::stopGradient, {x[0]})->result())};
  };
  EXPECT_EQ(valuesOf({counting({3})}, timesItself)[0].values, (Values{0, 1, 4}));
  std::vector<HostTensor> gradients = gradientsOf({counting({3})}, timesItself);
  EXPECT_EQ(gradients[0].values, (Values{0, 1, 2})); // not twice that
}

OP_TEST(transpose, PermutesAxes) {
  EXPECT_EQ(apply(Op::transpose, {counting({2, 3})}, TransposeAttributes{{1, 0}}).values, (Values{0, 3, 1, 4, 2, 5}));
  HostTensor cycled = apply(Op::transpose, {counting({2, 1, 3})}, TransposeAttributes{{2, 0, 1}});
  EXPECT_EQ(cycled.type, Type(DType::f32, {3, 2, 1}));
  EXPECT_EQ(cycled.values, (Values{0, 3, 1, 4, 2, 5}));
  checkGradient(Op::transpose, {{2, 3, 5}}, TransposeAttributes{{2, 0, 1}});
  for (const Shape &wrong : {Shape{0, 0}, Shape{0, 2}, Shape{0}})
    EXPECT_NE(inferMessage(Op::transpose, {x23}, TransposeAttributes{wrong}), "");
}

// ---- slice, pad, concat

OP_TEST(slice, TakesStepsForwardsAndBackwards) {
  EXPECT_EQ(apply(Op::slice, {counting({7})}, SliceAttributes{{1}, {3}, {2}}).values, (Values{1, 3, 5}));
  EXPECT_EQ(apply(Op::slice, {counting({7})}, SliceAttributes{{5}, {3}, {-2}}).values, (Values{5, 3, 1}));
  EXPECT_EQ(apply(Op::slice, {counting({2, 3})}, SliceAttributes{{1, 0}, {1, 2}, {1, 1}}).values, (Values{3, 4}));
  EXPECT_TRUE(apply(Op::slice, {counting({3})}, SliceAttributes{{3}, {0}, {1}}).values.empty());
}

OP_TEST(slice, HasADerivativeForAllStepsAndSizes) {
  checkGradient(Op::slice, {{7, 5}}, SliceAttributes{{1, 0}, {3, 5}, {2, 1}});
  checkGradient(Op::slice, {{7, 5}}, SliceAttributes{{6, 4}, {3, 2}, {-3, -2}});
  checkGradient(Op::slice, {{7, 5}}, SliceAttributes{{2, 4}, {1, 1}, {5, -9}});
  checkGradient(Op::slice, {{7, 5}}, SliceAttributes{{2, 4}, {0, 1}, {1, 1}});
}

TEST(Slice, StaysInsideItsOperand) {
  EXPECT_EQ(inferMessage(Op::slice, {x23}, SliceAttributes{{0}, {1}, {1}}),
            "slice: (C1) starts, sizes and steps need one entry per axis of f32[2,3]");
  EXPECT_EQ(inferMessage(Op::slice, {x23}, SliceAttributes{{0, 0}, {1, 1}, {1, 0}}),
            "slice: (C2) the step of axis 1 is 0");
  EXPECT_EQ(inferMessage(Op::slice, {x23}, SliceAttributes{{0, 1}, {2, 2}, {1, 2}}),
            "slice: (C3) 2 elements from 1 by 2 leave axis 1 of f32[2,3]");
  EXPECT_NE(inferMessage(Op::slice, {x23}, SliceAttributes{{0, 0}, {2, 2}, {1, -1}}), "");
  EXPECT_NE(inferMessage(Op::slice, {x23}, SliceAttributes{{0, 0}, {2, -1}, {1, 1}}), "");
  EXPECT_NE(inferMessage(Op::slice, {x23}, SliceAttributes{{0, 0}, {2, 3}, {1, INT64_MAX}}), "");
}

OP_TEST(pad, FillsAroundAndBetween) {
  EXPECT_EQ(apply(Op::pad, {counting({3})}, PadAttributes{{1}, {2}, {1}, 9}).values, (Values{9, 0, 9, 1, 9, 2, 9, 9}));
  checkGradient(Op::pad, {{2, 3}}, PadAttributes{{1, 0}, {0, 2}, {0, 3}, 7});
  checkGradient(Op::pad, {{1, 1}}, PadAttributes{{0, 0}, {0, 0}, {4, 4}, 0});
  EXPECT_NE(inferMessage(Op::pad, {x23}, PadAttributes{{1}, {2}, {1}}), "");
  EXPECT_EQ(inferMessage(Op::pad, {x23}, PadAttributes{{0, -1}, {0, 0}, {0, 0}}),
            "pad: (C2) axis 1 has a negative amount of padding");
  EXPECT_EQ(inferMessage(Op::pad, {x23}, PadAttributes{{0, 0}, {0, 0}, {0, INT64_MAX}}),
            "pad: (C3) axis 1 becomes too long");
}

OP_TEST(pad, UndoesASliceOfEverySecondElement) {
  checkGradients({.inputs = {{Type(DType::f32, {2, 3})}}, .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                    Value *wide = b.create(Op::pad, {x[0]}, PadAttributes{{0, 1}, {0, 0}, {0, 1}})->result();
                    SliceAttributes back{{0, 1}, {2, 3}, {1, 2}};
                    return Results{b.mul(b.create(Op::slice, {wide}, back)->result(), x[0])};
                  }});
}

OP_TEST(concat, JoinsOnAnyAxis) {
  EXPECT_EQ(apply(Op::concat, {counting({2, 1}), counting({2, 2})}, AxisAttributes{1}).values,
            (Values{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(apply(Op::concat, {counting({1, 2}), counting({0, 2}), counting({2, 2})}, AxisAttributes{0}).values,
            (Values{0, 1, 0, 1, 2, 3}));
  checkGradient(Op::concat, {{2, 1, 3}, {2, 4, 3}, {2, 0, 3}}, AxisAttributes{1});
  checkGradient(Op::concat, {{3}}, AxisAttributes{0});
}

OP_TEST(concat, OfOneValueTwiceSumsItsCotangents) {
  checkGradients({.inputs = {{x23}, {x23}}, .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                    Node *joined = b.create(Op::concat, {x[0], x[1], x[0]}, AxisAttributes{1});
                    return Results{b.mul(joined->result(), joined->result())};
                  }});
}

TEST(Concat, ItsOperandsAgreeBesideTheAxis) {
  EXPECT_EQ(inferMessage(Op::concat, {}, AxisAttributes{0}), "concat: (C1) there is nothing to join");
  EXPECT_NE(inferMessage(Op::concat, {x23}, AxisAttributes{2}), "");
  EXPECT_EQ(inferMessage(Op::concat, {x23, Type(DType::f32, {2, 4})}, AxisAttributes{0}),
            "concat: (C3) f32[2,4] and f32[2,3] differ beside axis 0");
  EXPECT_NE(inferMessage(Op::concat, {x23, Type(DType::f64, {2, 3})}, AxisAttributes{0}), "");
  EXPECT_NE(inferMessage(Op::concat, {x23, Type(DType::f32, {2, 3, 1})}, AxisAttributes{0}), "");
}

} // namespace
} // namespace fsdpc
