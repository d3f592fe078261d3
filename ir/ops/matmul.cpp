// matmul: the matrix product over the last two dims, with leading batch dims and an optional bias for every row.
#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

namespace fsdpc {

namespace {

constexpr llvm::StringRef matmulNames[] = {"a", "b", "bias?"};

/// The dims of y [batch..., rows, columns] = A [.., rows, inner] B [.., inner, columns], with transposes resolved.
struct MatmulShape {
  int64_t rows, innerA, innerB, columns;
  llvm::ArrayRef<int64_t> batchA, batchB;

  MatmulShape(const Type &a, const Type &b, const MatmulAttributes &attributes)
      : rows(a.dim(attributes.transposeA ? -1 : -2)), innerA(a.dim(attributes.transposeA ? -2 : -1)),
        innerB(b.dim(attributes.transposeB ? -1 : -2)), columns(b.dim(attributes.transposeB ? -2 : -1)),
        batchA(a.shape().drop_back(2)), batchB(b.shape().drop_back(2)) {}
  llvm::ArrayRef<int64_t> batch() const { return batchA.empty() ? batchB : batchA; }
};

llvm::Error checkBias(const Type &bias, const MatmulShape &product, DType result) {
  if (bias.shape() != llvm::ArrayRef<int64_t>(product.columns) || bias.dtype() != result)
    return constraintError("matmul", "C6",
                           "a bias has the result's dtype, " + nameOf(result) + ", and an element per column, " +
                               llvm::Twine(product.columns) + ", but is " + toString(bias));
  if (product.innerA == 0)
    return constraintError("matmul", "C6", "a bias is added to sums over one element or more");
  return llvm::Error::success();
}

llvm::Error inferMatmul(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                        llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(matmulInfo, operands))
    return error;
  const Type &a = operands[0], &b = operands[1];
  std::string both = toString(a) + " x " + toString(b);
  if (a.rank() < 2 || b.rank() < 2)
    return constraintError("matmul", "C1", "both operands need two axes or more: " + both);
  MatmulShape own(a, b, attributesOf<MatmulAttributes>(attributes));
  if (own.innerA != own.innerB)
    return constraintError("matmul", "C2", "inner dims differ: " + both);
  if (own.batchA != own.batchB && !own.batchA.empty() && !own.batchB.empty())
    return constraintError("matmul", "C3", "batch dims differ: " + both);
  if (a.dtype() != b.dtype() || a.dtype() == DType::boolean)
    return constraintError("matmul", "C4", "the operands need one dtype of numbers: " + both);
  llvm::Expected<DType> dtype =
      dtypeOfSum(matmulInfo, a.dtype(), attributesOf<MatmulAttributes>(attributes).accumulateF32);
  if (!dtype)
    return dtype.takeError();
  if (operands.size() == 3)
    if (llvm::Error error = checkBias(operands[2], own, *dtype))
      return error;
  Shape shape(own.batch());
  shape.append({own.rows, own.columns});
  return addResult(matmulInfo, "C5", *dtype, shape, results);
}

/// Element (row, column) of a matrix that starts at `first` in a tensor, transposed or not.
struct MatrixView {
  int64_t rowStride, columnStride, batchStride;
  MatrixView(const Type &type, bool transposed)
      : rowStride(transposed ? 1 : type.dim(-1)), columnStride(transposed ? type.dim(-1) : 1),
        batchStride(type.rank() == 2 ? 0 : type.dim(-1) * type.dim(-2)) {}
  int64_t at(int64_t batch, int64_t row, int64_t column) const {
    return batch * batchStride + row * rowStride + column * columnStride;
  }
};

void evaluateMatmul(EvaluateContext &context) {
  const auto &attributes = context.get<MatmulAttributes>();
  const HostTensor &a = *context.operands[0], &b = *context.operands[1];
  const HostTensor *bias = context.operands.size() == 3 ? context.operands[2] : nullptr;
  MatmulShape own(a.type, b.type, attributes);
  MatrixView viewA(a.type, attributes.transposeA), viewB(b.type, attributes.transposeB);
  int64_t batches = productOf(own.batch(), 0, static_cast<int64_t>(own.batch().size()));
  double *to = context.results[0].values.data();
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t row = 0; row < own.rows; ++row)
      for (int64_t column = 0; column < own.columns; ++column) {
        double sum = bias ? bias->values[column] : 0;
        for (int64_t k = 0; k < own.innerA; ++k)
          sum += a.values[viewA.at(batch, row, k)] * b.values[viewB.at(batch, k, column)];
        *to++ = sum;
      }
}

/// x [batch..., m, n] -> [batch * m, n]. With `swap`, swaps the last two dims of x first.
Value *flattened(Builder &builder, Value *x, bool swap) {
  if (swap)
    x = builder.swapLastTwo(x);
  int64_t rank = x->type().rank();
  return builder.reshape(x, {productOf(x->type().shape(), 0, rank - 1), x->type().dim(-1)});
}

/// dA = dy B^T, or its transpose B dy^T if a is transposed.
Value *cotangentOfA(Builder &builder, const Node &node, Value *dy) {
  const auto &[transposeA, transposeB, accumulateF32] = node.get<MatmulAttributes>();
  Value *a = node.operand(0), *b = node.operand(1);
  if (a->type().rank() > 2 || b->type().rank() == 2)
    return transposeA ? builder.matmul(b, dy, transposeB, true) : builder.matmul(dy, b, false, !transposeB);
  // All batches share a: the sum over batches is one matmul whose inner dim runs over batches and columns.
  Value *dyColumns = flattened(builder, dy, true), *bColumns = flattened(builder, b, !transposeB);
  return transposeA ? builder.matmul(bColumns, dyColumns, true, false)
                    : builder.matmul(dyColumns, bColumns, true, false);
}

/// dB = A^T dy, or its transpose dy^T A if b is transposed.
Value *cotangentOfB(Builder &builder, const Node &node, Value *dy) {
  const auto &[transposeA, transposeB, accumulateF32] = node.get<MatmulAttributes>();
  Value *a = node.operand(0), *b = node.operand(1);
  if (b->type().rank() > 2 || a->type().rank() == 2)
    return transposeB ? builder.matmul(dy, a, true, transposeA) : builder.matmul(a, dy, !transposeA, false);
  // All batches share b (a weight), as above. The usual form x [B, T, C] w [C, D] needs no transpose in memory.
  Value *aRows = flattened(builder, a, transposeA), *dyRows = flattened(builder, dy, false);
  return transposeB ? builder.matmul(dyRows, aRows, true, false) : builder.matmul(aRows, dyRows, true, false);
}

void matmulVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (dy && context.needed[0])
    context.operandCotangents[0] = cotangentOfA(context.builder, context.node, dy);
  if (dy && context.needed[1])
    context.operandCotangents[1] = cotangentOfB(context.builder, context.node, dy);
  if (dy && context.node.operandCount() == 3 && context.needed[2])
    context.operandCotangents[2] = context.builder.reduceToShape(dy, context.node.operand(2)->type().shape());
}

Cost matmulCost(const Node &node) {
  MatmulShape own(node.operand(0)->type(), node.operand(1)->type(), node.get<MatmulAttributes>());
  return costWithFlops(node,
                       2.0 * static_cast<double>(node.result()->type().elements()) * static_cast<double>(own.innerA));
}

/// `axis` of an operand, as an axis of the result; -1 for the summed one.
int64_t axisOfProduct(const Node &node, unsigned operand, int64_t axis) {
  const auto &own = node.get<MatmulAttributes>();
  int64_t rank = node.operand(operand)->type().rank(), resultRank = node.result()->type().rank();
  if (operand == 2)
    return resultRank - 1;
  if (axis < rank - 2)
    return axis;
  bool isFirst = axis == rank - 2;
  bool isKept = operand == 0 ? isFirst != own.transposeA : isFirst == own.transposeB;
  return isKept ? (operand == 0 ? resultRank - 2 : resultRank - 1) : -1;
}

} // namespace

constinit const OpInfo matmulInfo = {
    .name = "matmul",
    .doc = "a b over the last two dims, each transposed first if its flag says so; an "
           "operand of rank 2 multiplies every batch of the "
           "other. The bias is added to every row, before the sum is rounded. (C1) Ranks are 2 or more. (C2) The inner "
           "dims agree. (C3) The batch "
           "dims agree, or one operand has none. (C4) The "
           "operands have one dtype, not bool. (C5) The result's bytes fit in memory. (C6) A "
           "bias has the result's dtype and one element per column; the inner dim is not 0.",
    .operandNames = matmulNames,
    .traits = pure,
    .makeAttributes = makeAttributes<MatmulAttributes>,
    .infer = inferMatmul,
    .evaluate = evaluateMatmul,
    .vjp = matmulVjp,
    .cost = matmulCost,
    .computeClass = ComputeClass::matmul,
    .stages = everyStage,
    .batch = batchByAxis<axisOfProduct>,
    .firstSum = 0,
    .accumulateInF32 = accumulateInF32<MatmulAttributes>,
};

} // namespace fsdpc
