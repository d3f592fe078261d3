// Sequences of tensors. Their lengths are known at compile time, so they become slices and concats.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

/// Sizes of the parts that SplitToSequence makes of an axis.
Shape partSizes(NodeTranslation &t, int64_t size) {
  bool isOneSize = t.hasInput(1) && t.input(1)->type().rank() == 0;
  if (t.hasInput(1) && !isOneSize)
    return t.constantIntegers(1, "the split");
  int64_t part = isOneSize ? t.constantInteger(1, "the split") : 1;
  if (part < 1)
    t.reject("parts of size " + llvm::Twine(part));
  t.state.charge(size / part);
  Shape sizes(size / part, part);
  if (size % part != 0)
    sizes.push_back(size % part);
  return sizes;
}

Value *withoutAxis(NodeTranslation &t, Value *x, int64_t axis) {
  Shape shape(x->type().shape());
  shape.erase(shape.begin() + axis);
  return t.reshape(x, shape);
}

void splitToSequence(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t axis = t.normalAxis(t.integer("axis", 0), x->type().rank()), size = x->type().dim(axis), start = 0;
  bool dropsAxis = !t.hasInput(1) && t.integer("keepdims", 1) == 0;
  TensorSequence parts;
  for (int64_t part : partSizes(t, size)) {
    if (part < 0 || part > size - start)
      t.reject("the parts do not add up to " + llvm::Twine(size));
    Value *slice = t.slice(x, axis, start, part);
    parts.push_back(dropsAxis ? withoutAxis(t, slice, axis) : slice);
    start += part;
  }
  if (start != size)
    t.reject("the parts add up to " + llvm::Twine(start) + " instead of " + llvm::Twine(size));
  t.setSequence(0, std::move(parts));
}

void construct(NodeTranslation &t) {
  TensorSequence elements;
  for (unsigned i = 0; i < t.inputCount(); ++i)
    elements.push_back(t.input(i));
  t.setSequence(0, std::move(elements));
}

void empty(NodeTranslation &t) { t.setSequence(0, {}); }

/// The position in [0, count - 1]. Rejects others.
int64_t position(NodeTranslation &t, unsigned input, int64_t count) {
  int64_t at = t.constantInteger(input, "the position");
  if (at < -count || at >= count)
    t.reject("position " + llvm::Twine(at) + " is outside a sequence of " + llvm::Twine(count));
  return at < 0 ? at + count : at;
}

void at(NodeTranslation &t) {
  const TensorSequence &elements = t.sequence(0);
  t.setOutput(0, elements[position(t, 1, static_cast<int64_t>(elements.size()))]);
}

void insert(NodeTranslation &t) {
  TensorSequence elements = t.sequence(0);
  int64_t count = static_cast<int64_t>(elements.size());
  bool isAtEnd = !t.hasInput(2) || t.constantInteger(2, "the position") == count;
  elements.insert(elements.begin() + (isAtEnd ? count : position(t, 2, count)), t.input(1));
  t.setSequence(0, std::move(elements));
}

void erase(NodeTranslation &t) {
  TensorSequence elements = t.sequence(0);
  int64_t count = static_cast<int64_t>(elements.size());
  if (count == 0)
    t.reject("its sequence is empty");
  elements.erase(elements.begin() + (t.hasInput(1) ? position(t, 1, count) : count - 1));
  t.setSequence(0, std::move(elements));
}

void length(NodeTranslation &t) {
  t.setOutput(0, t.reshape(t.integerTensor({static_cast<int64_t>(t.sequence(0).size())}), {}));
}

void concatFromSequence(NodeTranslation &t) {
  const TensorSequence &elements = t.sequence(0);
  if (elements.empty())
    t.reject("its sequence is empty");
  bool addsAxis = t.integer("new_axis", 0) != 0;
  int64_t rank = elements[0]->type().rank() + (addsAxis ? 1 : 0);
  int64_t axis = t.normalAxis(t.integer("axis", 0), rank);
  llvm::SmallVector<Value *, 8> parts;
  for (Value *element : elements) {
    if (element->type().rank() != elements[0]->type().rank())
      t.reject("its tensors have different ranks");
    Shape shape(element->type().shape());
    if (addsAxis)
      shape.insert(shape.begin() + axis, 1);
    if (shape[axis] != 0)
      parts.push_back(t.reshape(element, shape));
  }
  t.setOutput(0, parts.empty() ? elements[0] : t.concat(parts, axis));
}

// ---- Optionals: an optional with a value is that value.

void optional(NodeTranslation &t) {
  if (t.inputCount() == 0)
    t.setEmptyOptional(0);
  else
    t.passOn();
}

void optionalGetElement(NodeTranslation &t) {
  if (!t.hasInput(0))
    t.reject("its optional is empty");
  t.passOn();
}

void optionalHasElement(NodeTranslation &t) { t.setOutput(0, t.constant(Type(DType::boolean, {}), t.hasInput(0))); }

constexpr TranslationRow rows[] = {
    {"ConcatFromSequence", concatFromSequence},
    {"Optional", optional},
    {"OptionalGetElement", optionalGetElement},
    {"OptionalHasElement", optionalHasElement},
    {"SequenceAt", at},
    {"SequenceConstruct", construct},
    {"SequenceEmpty", empty},
    {"SequenceErase", erase},
    {"SequenceInsert", insert},
    {"SequenceLength", length},
    {"SplitToSequence", splitToSequence},
};

} // namespace

TranslationRows sequenceTranslations() { return rows; }

} // namespace fsdpc
