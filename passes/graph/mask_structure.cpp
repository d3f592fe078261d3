#include "passes/graph/mask_structure.h"

#include "ir/eval/known_value.h"
#include "ir/ops/attributes.h"
#include "passes/graph/mask_ranges.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace fsdpc {

namespace {

// Masks have some twenty ops. The limits are for graphs that only look like one.
constexpr int maxDepth = 48;
constexpr int maxSteps = 2000;

class Reader {
public:
  Reader(const Shape &scores, Builder &builder) : scores(scores), builder(builder) {}

  /// The mask's value, broadcast to the scores.
  Meaning read(Value *mask) { return read(mask, broadcastIndices(mask->type().shape(), identity())); }

private:
  int64_t rank() const { return static_cast<int64_t>(scores.size()); }
  Indices identity() const;
  static Indices broadcastIndices(llvm::ArrayRef<int64_t> shape, const Indices &indices);

  Meaning read(Value *value, const Indices &indices);
  Meaning readNode(const Node &node, const Indices &indices);
  Meaning readKnown(const Value *value, const Indices &indices);
  Meaning readMove(const Node &node, Indices indices);
  Meaning readReshape(const Node &node, const Indices &indices);
  Meaning readConcat(const Node &node, Indices indices);
  Meaning readGather(const Node &node, const Indices &indices);
  Meaning readGatherNd(const Node &node, const Indices &indices);
  Meaning readConstant(const Node &node, const Indices &indices);
  Meaning readIota(const Node &node, const Indices &indices);
  Meaning readElementwise(const Node &node, const Indices &indices);
  std::optional<Index> indexFrom(Value *value, const Indices &indices);

  Meaning compute(const Node &node, llvm::ArrayRef<Meaning> operands);
  Meaning leaf(Value *value, const Indices &indices);
  Value *asOpaque(const Meaning &meaning, DType dtype);
  bool dependsOnBoth(llvm::ArrayRef<bool> axes) const { return axes[rank() - 1] && axes[rank() - 2]; }

  const Shape &scores;
  Builder &builder;
  int depth = 0, steps = 0;
};

// ---- indices

Indices Reader::identity() const {
  Indices indices;
  for (int64_t axis = 0; axis < rank(); ++axis)
    indices.push_back({axis, 0, 1});
  return indices;
}

/// The indices of a value of this shape that is broadcast to where `indices` hold.
Indices Reader::broadcastIndices(llvm::ArrayRef<int64_t> shape, const Indices &indices) {
  Indices own;
  const size_t added = indices.size() - shape.size();
  for (size_t axis = 0; axis < shape.size(); ++axis)
    own.push_back(shape[axis] == 1 ? Index{} : indices[added + axis]);
  return own;
}

// ---- moves

Meaning Reader::read(Value *value, const Indices &indices) {
  if (depth >= maxDepth || ++steps > maxSteps)
    return {};
  ++depth;
  const Node *node = value->definer();
  Meaning meaning = node && node->resultCount() == 1 ? readNode(*node, indices) : Meaning();
  --depth;
  if (!isUnknown(meaning) && !std::holds_alternative<Opaque>(meaning))
    return meaning;
  if (Meaning known = readKnown(value, indices); !isUnknown(known))
    return known;
  return isUnknown(meaning) ? leaf(value, indices) : meaning;
}

/// What is computed from constants alone, such as the documents of a sequence that has one. Nothing of the shape of the
/// scores is evaluated.
Meaning Reader::readKnown(const Value *value, const Indices &indices) {
  const auto isOn = [&](int64_t axis) {
    return llvm::any_of(indices, [&](const Index &index) { return index.axis == axis; });
  };
  if (value->type().dtype() == DType::boolean || (isOn(rank() - 1) && isOn(rank() - 2)))
    return {};
  std::optional<HostTensor> known = knownValue(value, maxRangeElements);
  return known ? rangeOf(denseOf(*known), known->type, indices, rank()) : Meaning();
}

Meaning Reader::readNode(const Node &node, const Indices &indices) {
  switch (node.op()) {
  case Op::constant: return readConstant(node, indices);
  case Op::iota: return readIota(node, indices);
  case Op::broadcast: return read(node.operand(0), broadcastIndices(node.operand(0)->type().shape(), indices));
  case Op::reshape: return readReshape(node, indices);
  case Op::transpose:
  case Op::slice: return readMove(node, indices);
  case Op::concat: return readConcat(node, indices);
  case Op::gather: return readGather(node, indices);
  case Op::gatherNd: return readGatherNd(node, indices);
  default: return isElementwise(node) && node.op() != Op::fused ? readElementwise(node, indices) : Meaning();
  }
}

Meaning Reader::readMove(const Node &node, Indices indices) {
  if (node.op() == Op::transpose) {
    Indices moved(indices.size());
    for (auto [to, from] : llvm::enumerate(node.get<TransposeAttributes>().permutation))
      moved[from] = indices[to];
    return read(node.operand(0), moved);
  }
  const auto &slice = node.get<SliceAttributes>();
  for (auto [axis, index] : llvm::enumerate(indices)) {
    index.offset = slice.starts[axis] + index.offset * slice.steps[axis];
    index.step *= slice.steps[axis];
  }
  return read(node.operand(0), indices);
}

/// Axes of size 1 may come or go, and leading ones be regrouped, if nothing below depends on them.
Meaning Reader::readReshape(const Node &node, const Indices &indices) {
  llvm::ArrayRef<int64_t> to = node.result()->type().shape(), from = node.operand(0)->type().shape();
  Indices moved(from.size());
  size_t next = to.size();
  for (size_t axis = from.size(); axis-- > 0;) {
    if (from[axis] == 1)
      continue;
    while (next > 0 && to[next - 1] == 1)
      --next;
    if (next > 0 && to[next - 1] == from[axis]) {
      moved[axis] = indices[--next];
      continue;
    }
    for (size_t leading = 0; leading <= axis; ++leading)
      moved[leading].axis = from[leading] == 1 ? noAxis : unknownAxis;
    break;
  }
  return read(node.operand(0), moved);
}

/// One number for each place on an axis of the scores, as an index of another value. Negative numbers count from the
/// end there, so they are no such index.
std::optional<Index> Reader::indexFrom(Value *value, const Indices &indices) {
  const Meaning meaning = read(value, indices);
  const auto *linear = std::get_if<Linear>(&meaning);
  if (!linear)
    return std::nullopt;
  Index index{noAxis, static_cast<int64_t>(linear->constant), 0};
  for (auto [axis, step] : llvm::enumerate(linear->steps)) {
    if (step == 0)
      continue;
    if (index.axis != noAxis)
      return std::nullopt;
    index.axis = static_cast<int64_t>(axis);
    index.step = static_cast<int64_t>(step);
  }
  const int64_t last = index.axis == noAxis ? 0 : index.step * (scores[index.axis] - 1);
  return std::min(index.offset, index.offset + last) < 0 ? std::nullopt : std::optional(index);
}

/// Of one operand, if the index on the axis of the concat is one number.
Meaning Reader::readConcat(const Node &node, Indices indices) {
  const int64_t axis = node.get<AxisAttributes>().axis;
  Index &index = indices[static_cast<size_t>(axis)];
  if (index.axis != noAxis)
    return {};
  for (Value *operand : node.operands()) {
    if (index.offset < operand->type().dim(axis))
      return read(operand, indices);
    index.offset -= operand->type().dim(axis);
  }
  return {};
}

Meaning Reader::readGather(const Node &node, const Indices &indices) {
  const auto axis = static_cast<size_t>(node.get<AxisAttributes>().axis);
  const auto count = static_cast<size_t>(node.operand(1)->type().rank());
  const Indices ofIndices(indices.begin() + axis, indices.begin() + axis + count);
  std::optional<Index> picked = indexFrom(node.operand(1), ofIndices);
  if (!picked)
    return {};
  Indices moved(indices.begin(), indices.begin() + axis);
  moved.push_back(*picked);
  moved.append(indices.begin() + axis + count, indices.end());
  return read(node.operand(0), moved);
}

Meaning Reader::readGatherNd(const Node &node, const Indices &indices) {
  const Type &type = node.operand(1)->type();
  const int64_t last = type.rank() - 1;
  if (node.get<GatherNdAttributes>().batchDims != 0)
    return {};
  Indices moved;
  for (int64_t axis = 0; axis < type.dim(last); ++axis) {
    Indices ofAxis(indices.begin(), indices.begin() + last);
    ofAxis.push_back({noAxis, axis, 0});
    std::optional<Index> picked = indexFrom(node.operand(1), ofAxis);
    if (!picked)
      return {};
    moved.push_back(*picked);
  }
  moved.append(indices.begin() + last, indices.end());
  return read(node.operand(0), moved);
}

// ---- ranges and constants

/// One number, or a range on one axis.
Meaning Reader::readConstant(const Node &node, const Indices &indices) {
  const Dense &dense = node.get<ConstantAttributes>().value;
  Linear linear{dense.storedElements() > 0 ? dense.at(0) : 0, llvm::SmallVector<double, 5>(scores.size())};
  if (dense.isSplat() || dense.storedElements() == 1)
    return linear;
  Meaning range = rangeOf(dense, node.result()->type(), indices, rank());
  return isUnknown(range) ? bandOf(dense, node.result()->type(), indices, rank()) : range;
}

Meaning Reader::readIota(const Node &node, const Indices &indices) {
  const auto &iota = node.get<IotaAttributes>();
  const Index &index = indices[static_cast<size_t>(iota.axis)];
  return index.axis == unknownAxis ? Meaning() : along(index, iota.start, iota.step, rank());
}

// ---- elementwise

Meaning Reader::readElementwise(const Node &node, const Indices &indices) {
  llvm::SmallVector<Meaning, 3> operands;
  for (Value *operand : node.operands()) {
    operands.push_back(read(operand, indices));
    if (isUnknown(operands.back()))
      return {};
  }
  Meaning meaning = combine(node, operands);
  return isUnknown(meaning) ? compute(node, operands) : meaning;
}

// ---- values that depend on some axes only

/// The value itself, its axes where the scores have them.
Meaning Reader::leaf(Value *value, const Indices &indices) {
  llvm::SmallVector<bool, 5> axes(scores.size());
  Shape shape(scores.size(), 1);
  int64_t before = -1;
  for (auto [axis, index] : llvm::enumerate(indices)) {
    const int64_t dim = value->type().dim(static_cast<int64_t>(axis));
    if (index.axis == noAxis && dim == 1)
      continue;
    const bool isWhole = index.axis > before && index.offset == 0 && index.step == 1 && scores[index.axis] == dim;
    if (!isWhole)
      return {};
    before = index.axis;
    axes[index.axis] = true;
    shape[index.axis] = dim;
  }
  if (dependsOnBoth(axes))
    return {};
  return Opaque{builder.reshape(value, shape)};
}

Value *Reader::asOpaque(const Meaning &meaning, DType dtype) {
  if (const auto *opaque = std::get_if<Opaque>(&meaning))
    return opaque->value;
  const auto *linear = std::get_if<Linear>(&meaning);
  if (!linear)
    return nullptr;
  if (isConstant(*linear))
    return builder.constant(Type(dtype, Shape(scores.size(), 1)), linear->constant);
  IotaAttributes iota{dtype, Shape(scores.size(), 1), -1, linear->constant, 1};
  for (auto [axis, step] : llvm::enumerate(linear->steps)) {
    if (step == 0)
      continue;
    if (iota.axis >= 0)
      return nullptr;
    iota.axis = static_cast<int64_t>(axis);
    iota.step = step;
    iota.shape[axis] = scores[axis];
  }
  return builder.create(Op::iota, {}, iota)->result();
}

/// The op on the small values.
Meaning Reader::compute(const Node &node, llvm::ArrayRef<Meaning> operands) {
  llvm::SmallVector<Value *, 3> values;
  Shape shape(scores.size(), 1);
  llvm::SmallVector<bool, 5> axes(scores.size());
  for (auto [operand, meaning] : llvm::zip(node.operands(), operands)) {
    Value *value = asOpaque(meaning, operand->type().dtype());
    if (!value)
      return {};
    values.push_back(value);
    for (int64_t axis = 0; axis < rank(); ++axis)
      if (value->type().dim(axis) != 1) {
        shape[axis] = value->type().dim(axis);
        axes[axis] = true;
      }
  }
  if (dependsOnBoth(axes))
    return {};
  for (Value *&value : values)
    value = builder.broadcast(value, shape);
  return Opaque{builder.clone(node, values)->result()};
}

MaskStructure structureOf(const ScoreMask &mask, Builder &builder) {
  MaskStructure structure;
  if (mask.scores.size() < 2)
    return structure;
  const Meaning meaning = Reader(mask.scores, builder).read(mask.value);
  if (std::optional<double> number = constantOf(meaning)) {
    if (*number == (mask.kind == ScoreMask::Kind::visibleIfTrue))
      structure.visible = Visibility::always();
    return structure;
  }
  if (const auto *opaque = std::get_if<Opaque>(&meaning)) {
    structure.small = opaque->value;
    return structure;
  }
  const auto *choice = std::get_if<Choice>(&meaning);
  const bool isTruth = mask.selects();
  if (!choice || (choice->yes != 0) == (choice->no != 0))
    return structure;
  // Truths show keys where they are true, or hide them; numbers show them where they are 0.
  const bool showsYes = (choice->yes != 0) == (mask.kind == ScoreMask::Kind::visibleIfTrue);
  Visibility visible = showsYes ? choice->visible : negationOf(choice->visible);
  const double number = (mask.kind == ScoreMask::Kind::subtracted ? -1 : 1) * (showsYes ? choice->no : choice->yes);
  if (visible.isNegated || visible.positions || (!isTruth && !isHiding(number)))
    return structure;
  structure.hidden = isTruth ? mask.hidden() : number;
  structure.visible = std::move(visible);
  return structure;
}

} // namespace

const MaskStructure &MaskStructures::of(const ScoreMask &mask, Builder &builder) {
  auto [entry, isNew] = known.try_emplace({mask.value, static_cast<int>(mask.kind)});
  Entry &found = entry->second;
  // A use of its own keeps the value, which is the key, until dead nodes are eliminated.
  if (isNew)
    builder.create(Op::stopGradient, {mask.value});
  if (isNew || found.scores != mask.scores || found.fill != mask.fill)
    found = {mask.scores, mask.fill, structureOf(mask, builder)};
  return found.structure;
}

} // namespace fsdpc
