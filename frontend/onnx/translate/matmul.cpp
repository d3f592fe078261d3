// Matrix multiplication.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

/// An operand of matmul. A transpose of the last two dims becomes a flag, so that a weight is read as it is stored.
struct MatrixOperand {
  Value *value;
  bool isTransposed = false;
};

MatrixOperand throughTranspose(Value *value, bool isTransposed) {
  const Node *definer = value->definer();
  if (!definer || definer->op() != Op::transpose)
    return {value, isTransposed};
  Shape swapped = allAxes(value->type().rank());
  std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
  if (definer->get<TransposeAttributes>().permutation != swapped)
    return {value, isTransposed};
  return {definer->operand(0), !isTransposed};
}

Value *matmulWith(NodeTranslation &t, Value *a, Value *b, bool transposeA, bool transposeB) {
  MatrixOperand left = throughTranspose(a, transposeA), right = throughTranspose(b, transposeB);
  return t.make(Op::matmul, {left.value, right.value}, MatmulAttributes{left.isTransposed, right.isTransposed});
}

/// Broadcasts both operands to equal batch dims, unless one operand has none and multiplies every batch of the other.
void equalBatches(NodeTranslation &t, Value *&a, Value *&b) {
  llvm::ArrayRef<int64_t> batchA = a->type().shape().drop_back(2), batchB = b->type().shape().drop_back(2);
  if (batchA == batchB || batchA.empty() || batchB.empty())
    return;
  Shape batch = t.broadcastShape(batchA, batchB);
  auto extend = [&](Value *x) {
    Shape shape = batch;
    shape.append({x->type().dim(-2), x->type().dim(-1)});
    return t.broadcast(x, shape);
  };
  a = extend(a);
  b = extend(b);
}

/// numpy's matmul: an operand of rank 1 is a row on the left or a column on the right, and the result drops its dim.
void matmul(NodeTranslation &t) {
  Value *a = t.input(0), *b = t.input(1);
  bool isRow = a->type().rank() == 1, isColumn = b->type().rank() == 1;
  if (a->type().rank() == 0 || b->type().rank() == 0)
    t.reject("operands must have rank 1 or more");
  if (isRow)
    a = t.reshape(a, {1, a->type().dim(0)});
  if (isColumn)
    b = t.reshape(b, {b->type().dim(0), 1});
  equalBatches(t, a, b);
  Value *y = matmulWith(t, a, b, false, false);
  Shape shape(y->type().shape());
  if (isColumn)
    shape.pop_back();
  if (isRow)
    shape.erase(shape.end() - (isColumn ? 1 : 2));
  t.setOutput(0, t.reshape(y, shape));
}

/// alpha * A' B' + beta * C
void gemm(NodeTranslation &t) {
  Value *y = matmulWith(t, t.input(0), t.input(1), t.integer("transA", 0) != 0, t.integer("transB", 0) != 0);
  double alpha = t.real("alpha", 1), beta = t.real("beta", 1);
  if (alpha != 1)
    y = t.binary(Op::mul, y, alpha);
  if (t.hasInput(2) && beta != 0) {
    Value *c = beta == 1 ? t.input(2) : t.binary(Op::mul, t.input(2), beta);
    y = t.binary(Op::add, y, c);
  }
  t.setOutput(0, y);
}

constexpr TranslationRow rows[] = {{"Gemm", gemm}, {"MatMul", matmul}};

} // namespace

Value *matmulOf(NodeTranslation &t, Value *a, Value *b) { return matmulWith(t, a, b, false, false); }

TranslationRows matmulTranslations() { return rows; }

} // namespace fsdpc
