#include "passes/graph/attention_mask.h"

#include "passes/graph/match.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <limits>

namespace fsdpc {

namespace {

// Exporters write -10000, the lowest float or -infinity.
constexpr double hidingNumber = -9999;

enum class Visibility : uint8_t { visible, hidden, graded };

Visibility visibilityOf(double element, ScoreMask::Kind kind) {
  if (kind == ScoreMask::Kind::visibleIfTrue || kind == ScoreMask::Kind::hiddenIfTrue)
    return (element != 0) == (kind == ScoreMask::Kind::visibleIfTrue) ? Visibility::visible : Visibility::hidden;
  double added = kind == ScoreMask::Kind::subtracted ? -element : element;
  if (added == 0)
    return Visibility::visible;
  return isHiding(added) ? Visibility::hidden : Visibility::graded;
}

/// The data are consecutive `rows` x `columns` matrices.
MaskClass classify(const Dense &dense, int64_t elements, int64_t rows, int64_t columns, ScoreMask::Kind kind) {
  if (dense.storedElements() == 1 && elements > 0)
    return visibilityOf(dense.at(0), kind) == Visibility::visible ? MaskClass::hidesNothing : MaskClass::other;
  bool hidesNothing = true, isCausal = true;
  for (int64_t i = 0; i < elements && (hidesNothing || isCausal); ++i) {
    Visibility visibility = visibilityOf(dense.at(i), kind);
    int64_t query = i / columns % rows, key = i % columns;
    hidesNothing &= visibility == Visibility::visible;
    isCausal &= visibility == (key <= query ? Visibility::visible : Visibility::hidden);
  }
  return hidesNothing ? MaskClass::hidesNothing : isCausal ? MaskClass::causal : MaskClass::other;
}

int64_t dimFromEnd(const Type &type, int64_t fromEnd) { return type.rank() < fromEnd ? 1 : type.dim(-fromEnd); }

/// Zero or a hiding value, selected by the condition.
Value *selectAdditive(const ScoreMask &mask, Value *condition, Builder &builder) {
  // Scores plus the lowest float is the lowest float: exactly the result of selecting a finite fill in a row that is
  // all hidden.
  double hidden = std::isinf(mask.fill) ? mask.fill : std::numeric_limits<float>::lowest();
  Type type = condition->type().withDType(DType::f32);
  Value *zero = builder.constant(type, 0), *fill = builder.constant(type, hidden);
  bool isVisible = mask.kind == ScoreMask::Kind::visibleIfTrue;
  return builder.select(condition, isVisible ? zero : fill, isVisible ? fill : zero);
}

} // namespace

bool isHiding(double number) { return number <= hidingNumber; }

MaskClass MaskClasses::of(const ScoreMask &mask) {
  const Value *source = belowBroadcasts(mask.value);
  const Dense *dense = constantOf(source);
  if (!dense)
    return MaskClass::other;
  const Type &type = source->type();
  int64_t rows = dimFromEnd(type, 2), columns = dimFromEnd(type, 1);
  auto [entry, isNew] = known.try_emplace({source, static_cast<int>(mask.kind)}, MaskClass::other);
  if (isNew)
    entry->second = classify(*dense, type.elements(), rows, columns, mask.kind);
  bool isFull = rows == mask.scores[mask.scores.size() - 2] && columns == mask.scores.back();
  return entry->second == MaskClass::causal && !isFull ? MaskClass::other : entry->second;
}

Value *additiveMask(const ScoreMask &mask, llvm::ArrayRef<int64_t> leading, Builder &builder) {
  Value *value = belowBroadcasts(mask.value);
  if (mask.kind == ScoreMask::Kind::subtracted)
    value = builder.unary(Op::neg, value);
  else if (mask.kind != ScoreMask::Kind::added)
    value = selectAdditive(mask, value, builder);
  llvm::ArrayRef<int64_t> scoresLeading = llvm::ArrayRef<int64_t>(mask.scores).drop_back(2);
  if (scoresLeading == leading || value->type().rank() <= 2)
    return value;
  llvm::ArrayRef<int64_t> own = value->type().shape().drop_back(2);
  Shape matrix(value->type().shape().take_back(2));
  Shape regrouped(leading);
  if (llvm::all_of(own, [](int64_t dim) { return dim == 1; })) {
    regrouped = {1, 1};
  } else if (own != scoresLeading) {
    Shape whole(scoresLeading);
    llvm::append_range(whole, matrix);
    value = builder.broadcast(value, whole);
  }
  llvm::append_range(regrouped, matrix);
  return builder.reshape(value, regrouped);
}

} // namespace fsdpc
