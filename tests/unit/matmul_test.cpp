// matmul.
#include "tests/unit/gradient_check.h"

namespace fsdpc {
namespace {

using Values = std::vector<double>;
using Results = llvm::SmallVector<Value *, 4>;

BuildFunction product(bool transposeA, bool transposeB) {
  return [=](Builder &b, llvm::ArrayRef<Value *> x) { return Results{b.matmul(x[0], x[1], transposeA, transposeB)}; };
}

/// [batch..., rows, columns], the last two swapped if `transposed`.
Type matrixType(Shape batch, int64_t rows, int64_t columns, bool transposed) {
  batch.append({transposed ? columns : rows, transposed ? rows : columns});
  return Type(DType::f32, batch);
}

const HostTensor a23 = tensorOf(Type(DType::f32, {2, 3}), {1, 2, 3, 4, 5, 6});
const HostTensor b32 = tensorOf(Type(DType::f32, {3, 2}), {1, 0, 0, 1, 2, 2});

OP_TEST(matmul, MultipliesMatricesWithEachTransposeFlag) {
  EXPECT_EQ(valuesOf({a23, b32}, product(false, false))[0].values, (Values{7, 8, 16, 17}));
  EXPECT_EQ(valuesOf({a23, a23}, product(false, true))[0].values, (Values{14, 32, 32, 77}));
  EXPECT_EQ(valuesOf({a23, a23}, product(true, false))[0].values, (Values{17, 22, 27, 22, 29, 36, 27, 36, 45}));
  EXPECT_EQ(valuesOf({a23, b32}, product(true, true))[0].values, (Values{1, 4, 10, 2, 5, 14, 3, 6, 18}));
}

OP_TEST(matmul, AnOperandOfRankTwoMultipliesEveryBatchOfTheOther) {
  HostTensor batched = tensorOf(Type(DType::f32, {2, 1, 2}), {1, 2, 3, 4});
  HostTensor one = tensorOf(Type(DType::f32, {2, 2}), {1, 1, 0, 1});
  HostTensor right = valuesOf({batched, one}, product(false, false))[0];
  EXPECT_EQ(right.type, Type(DType::f32, {2, 1, 2}));
  EXPECT_EQ(right.values, (Values{1, 3, 3, 7}));
  HostTensor left = valuesOf({one, batched}, product(false, true))[0];
  EXPECT_EQ(left.type, Type(DType::f32, {2, 2, 1}));
  EXPECT_EQ(left.values, (Values{3, 2, 7, 4}));
}

OP_TEST(matmul, HasADerivativeForEachFlagAndBatchForm) {
  struct Form {
    Shape batchA, batchB;
  };
  for (const Form &form : {Form{{}, {}}, Form{{2, 3}, {2, 3}}, Form{{2, 3}, {}}, Form{{}, {3}}, Form{{1}, {}}})
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true})
        checkGradients(
            {.inputs = {{matrixType(form.batchA, 3, 5, transposeA)}, {matrixType(form.batchB, 5, 2, transposeB)}},
             .build = product(transposeA, transposeB)});
}

OP_TEST(matmul, HasADerivativeForSizeOneDimsAndAnUnusedInput) {
  checkGradients({.inputs = {{Type(DType::f32, {1, 1})}, {Type(DType::f32, {1, 3})}, {Type(DType::f32, {2})}},
                  .build = product(false, false)});
}

OP_TEST(matmul, AddsABiasToEveryRow) {
  HostTensor bias = tensorOf(Type(DType::f32, {2}), {100, -1});
  BuildFunction biased = [](Builder &b, llvm::ArrayRef<Value *> x) {
    return Results{b.create(Op::matmul, {x[0], x[1], x[2]}, MatmulAttributes{})->result()};
  };
  EXPECT_EQ(valuesOf({a23, b32, bias}, biased)[0].values, (Values{107, 7, 116, 16}));
  HostTensor batched = tensorOf(Type(DType::f32, {2, 1, 3}), {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(valuesOf({batched, b32, bias}, biased)[0].values, (Values{107, 7, 116, 16}));
  for (const Type &a : {Type(DType::f32, {4, 3}), Type(DType::f32, {2, 4, 3})})
    checkGradients({.inputs = {{a}, {Type(DType::f32, {3, 2})}, {Type(DType::f32, {2})}}, .build = biased});
}

OP_TEST(matmul, RoundsTheSumWithItsBiasOnce) {
  // 256 + 1 is not representable in bf16, so a sum that is rounded early loses one of them.
  HostTensor a = tensorOf(Type(DType::bf16, {1, 2}), {256, 1}), b = tensorOf(Type(DType::bf16, {2, 1}), {1, 1});
  HostTensor bias = tensorOf(Type(DType::bf16, {1}), {1});
  EXPECT_EQ(valuesOf({a, b, bias},
                     [](Builder &builder, llvm::ArrayRef<Value *> x) {
                       return Results{builder.create(Op::matmul, {x[0], x[1], x[2]}, MatmulAttributes{})->result()};
                     })[0]
                .values,
            Values{258});
}

OP_TEST(matmul, HasADerivativeByAValueOnBothSides) {
  checkGradients({.inputs = {{Type(DType::f32, {3, 3})}}, .build = [](Builder &b, llvm::ArrayRef<Value *> x) {
                    return Results{b.matmul(x[0], x[0]), b.matmul(x[0], x[0], true, false)};
                  }});
}

OP_TEST(matmul, GivesAWeightItsDerivativeInOneMatmulWithoutTransposes) {
  Module module;
  Function *function = module.addFunction(FunctionKind::forward);
  Value *x = function->addArgument(ArgumentKind::input, "x", Type(DType::f32, {2, 3, 4}));
  Value *weight = function->addArgument(ArgumentKind::input, "w", Type(DType::f32, {4, 5}));
  Value *dy = function->addArgument(ArgumentKind::input, "dy", Type(DType::f32, {2, 3, 5}));
  Builder builder(*function);
  Node *node = builder.matmul(x, weight)->definer();
  Value *ofResult[1] = {dy};
  Value *cotangents[2] = {nullptr, nullptr};
  bool needed[2] = {false, true};
  VjpContext context{builder, *node, ofResult, cotangents, needed};
  infoOf(Op::matmul).vjp(context);
  EXPECT_EQ(cotangents[0], nullptr) << "nobody asked for it";
  EXPECT_EQ(cotangents[1]->type(), weight->type());
  EXPECT_EQ(cotangents[1]->definer()->op(), Op::matmul);
  for (const Node *each : *function)
    EXPECT_TRUE(each->op() == Op::matmul || each->op() == Op::reshape) << infoOf(*each).name.str();
  recordExercisedOps(module);
}

TEST(Matmul, ItsShapeRule) {
  Type a(DType::f32, {4, 3});
  EXPECT_EQ(inferMessage(Op::matmul, {Type(DType::f32, {3}), a}),
            "matmul: (C1) both operands need two axes or more: f32[3] x f32[4,3]");
  EXPECT_EQ(inferMessage(Op::matmul, {a, Type(DType::f32, {2, 5})}),
            "matmul: (C2) inner dims differ: f32[4,3] x f32[2,5]");
  EXPECT_EQ(inferMessage(Op::matmul, {Type(DType::f32, {2, 4, 3}), Type(DType::f32, {1, 3, 4})}),
            "matmul: (C3) batch dims differ: f32[2,4,3] x f32[1,3,4]");
  EXPECT_EQ(inferMessage(Op::matmul, {a, Type(DType::f64, {3, 4})}),
            "matmul: (C4) the operands need one dtype of numbers: f32[4,3] x f64[3,4]");
  EXPECT_EQ(inferMessage(Op::matmul, {a, Type(DType::f32, {3, 2}), Type(DType::f32, {1, 2})}),
            "matmul: (C6) a bias has the result's dtype, f32, and an element per column, 2, but is f32[1,2]");
  EXPECT_EQ(inferMessage(Op::matmul, {a, Type(DType::f32, {3, 2}), Type(DType::bf16, {2})}),
            "matmul: (C6) a bias has the result's dtype, f32, and an element per column, 2, but is bf16[2]");
  EXPECT_EQ(inferMessage(Op::matmul, {Type(DType::f32, {4, 0}), Type(DType::f32, {0, 2}), Type(DType::f32, {2})}),
            "matmul: (C6) a bias is added to sums over one element or more");
  int64_t large = int64_t(1) << 40;
  EXPECT_NE(inferMessage(Op::matmul, {Type(DType::f32, {large, 1}), Type(DType::f32, {1, large})}), "");
}

} // namespace
} // namespace fsdpc
