// Ops whose result shapes or values require constant operands.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

HostTensor knownInput(NodeTranslation &t, unsigned i) {
  std::optional<HostTensor> known = t.knownTensor(t.input(i));
  if (!known)
    t.reject("input " + llvm::Twine(i) +
             " must be known when compiling, but depends on the model's inputs, and with it how many elements the "
             "result has. Choose with torch.where instead of a mask as an index");
  return *known;
}

/// Coordinates of the elements that are not 0, one column each, in row-major order.
void nonZero(NodeTranslation &t) {
  HostTensor x = knownInput(t, 0);
  int64_t rank = x.type.rank();
  std::vector<int64_t> found;
  for (size_t i = 0; i < x.values.size(); ++i)
    if (x.values[i] != 0)
      found.push_back(static_cast<int64_t>(i));
  int64_t count = static_cast<int64_t>(found.size());
  std::vector<double> coordinates(rank * count);
  for (int64_t k = 0; k < count; ++k)
    for (int64_t axis = rank, rest = found[k]; axis-- > 0; rest /= x.type.dim(axis))
      coordinates[axis * count + k] = static_cast<double>(rest % x.type.dim(axis));
  t.setOutput(0, t.constant(Type(DType::i64, {rank, count}), Dense::fromDoubles(DType::i64, coordinates)));
}

/// Selects the slices along an axis, or the elements, whose condition is true.
void compress(NodeTranslation &t) {
  HostTensor condition = knownInput(t, 1);
  Value *x = t.input(0);
  if (!t.has("axis"))
    x = t.reshape(x, {x->type().elements()});
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank());
  if (condition.type.rank() != 1 || condition.type.dim(0) > x->type().dim(axis))
    t.reject("the condition does not fit");
  llvm::SmallVector<int64_t, 16> kept;
  for (size_t i = 0; i < condition.values.size(); ++i)
    if (condition.values[i] != 0)
      kept.push_back(static_cast<int64_t>(i));
  if (kept.empty())
    t.reject("its result would be empty");
  t.setOutput(0, t.make(Op::gather, {x, t.integerTensor(kept)}, AxisAttributes{axis}));
}

/// The exact integers of a constant.
std::vector<int64_t> knownIntegers(NodeTranslation &t, Value *x) {
  const Dense *dense = t.constantOf(x);
  std::vector<int64_t> values(x->type().elements());
  if (!dense && !t.knownTensor(x))
    t.reject("bits of integers must be known when compiling, but depend on the model's inputs");
  std::optional<HostTensor> tensor = dense ? std::nullopt : t.knownTensor(x);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = dense ? dense->integerAt(static_cast<int64_t>(i)) : static_cast<int64_t>(tensor->values[i]);
  return values;
}

Value *constantOfIntegers(NodeTranslation &t, Type type, const std::vector<int64_t> &values) {
  if (type.dtype() == DType::i64)
    return t.reshape(t.integerTensor(values), type.shape());
  return t.constant(type, Dense::fromDoubles(type.dtype(), std::vector<double>(values.begin(), values.end())));
}

bool isKnown(NodeTranslation &t, Value *x) { return t.constantOf(x) || t.knownTensor(x); }

template <auto combine>
void bitwise(NodeTranslation &t) {
  Shape shape = t.broadcastShape(t.input(0)->type().shape(), t.input(1)->type().shape());
  std::vector<int64_t> a = knownIntegers(t, t.broadcast(t.input(0), shape)),
                       b = knownIntegers(t, t.broadcast(t.input(1), shape));
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = combine(a[i], b[i]);
  t.setOutput(0, constantOfIntegers(t, t.input(0)->type().withShape(shape), a));
}

int64_t bitAnd(int64_t a, int64_t b) { return a & b; }
int64_t bitOr(int64_t a, int64_t b) { return a | b; }
int64_t bitXor(int64_t a, int64_t b) { return a ^ b; }

/// Exact for constants, up to 53 bits otherwise.
void bitwiseAnd(NodeTranslation &t) {
  if (isKnown(t, t.input(0)) && isKnown(t, t.input(1)))
    bitwise<bitAnd>(t);
  else
    t.setOutput(0, t.binary(Op::bitAnd, t.input(0), t.input(1)));
}

void bitNot(NodeTranslation &t) {
  std::vector<int64_t> values = knownIntegers(t, t.input(0));
  for (int64_t &value : values)
    value = ~value;
  t.setOutput(0, constantOfIntegers(t, t.input(0)->type(), values));
}

constexpr TranslationRow rows[] = {
    {"BitwiseAnd", bitwiseAnd},      {"BitwiseNot", bitNot}, {"BitwiseOr", bitwise<bitOr>},
    {"BitwiseXor", bitwise<bitXor>}, {"Compress", compress}, {"NonZero", nonZero},
};

} // namespace

TranslationRows knownTranslations() { return rows; }

} // namespace fsdpc
