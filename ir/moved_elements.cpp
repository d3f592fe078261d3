#include "ir/moved_elements.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/ops/helpers.h"
#include <numeric>

namespace fsdpc {

namespace {

/// The operand's coordinate along one of its axes: (start + step * c), where c is the result's coordinate along `axis`,
/// or 0 if `axis` is -1.
struct AxisWalk {
  int64_t axis = 0, start = 0, step = 1;
  int64_t interior = 1; ///< pad: divides the coordinate; a remainder means that there is no operand element
};

using Walks = llvm::SmallVector<AxisWalk, 4>;

/// One entry per axis of the operand. nullopt if the op does not map axes this way.
std::optional<Walks> axisWalks(const Node &node) {
  const Type &from = node.operand(0)->type(), &to = node.result()->type();
  Walks walks;
  for (int64_t i = 0; i < from.rank(); ++i)
    switch (node.op()) {
    case Op::transpose: {
      const Shape &permutation = node.get<TransposeAttributes>().permutation;
      walks.push_back({llvm::find(permutation, i) - permutation.begin()});
      break;
    }
    case Op::slice: {
      const auto &own = node.get<SliceAttributes>();
      walks.push_back({i, own.starts[i], own.steps[i]});
      break;
    }
    case Op::broadcast: walks.push_back({i + to.rank() - from.rank(), 0, from.dim(i) == 1 ? 0 : 1}); break;
    case Op::pad: {
      const auto &own = node.get<PadAttributes>();
      walks.push_back({i, -own.before[i], 1, own.interior[i] + 1});
      break;
    }
    default: return std::nullopt;
    }
  return walks;
}

bool keepsOrder(const Node &node) { return node.op() == Op::reshape || node.op() == Op::copy || node.op() == Op::cast; }

ElementSources inOrder(int64_t elements) {
  ElementSources sources(static_cast<size_t>(elements));
  std::iota(sources.begin(), sources.end(), 0);
  return sources;
}

/// Covers only the axes that `from` and `to` have.
ElementSources walked(const Walks &walks, llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
  Shape strides = rowMajorStrides(from);
  ElementSources sources(static_cast<size_t>(checkedElements(to).value_or(0)));
  forEachIndex(to, [&](int64_t flat, llvm::ArrayRef<int64_t> coordinates) {
    int64_t source = 0;
    bool isConstant = false;
    for (size_t i = 0; i < from.size(); ++i) {
      int64_t at = walks[i].start + walks[i].step * coordinates[walks[i].axis];
      isConstant |= at < 0 || at % walks[i].interior != 0 || at / walks[i].interior >= from[i];
      source += at / walks[i].interior * strides[i];
    }
    sources[static_cast<size_t>(flat)] = isConstant ? -1 : source;
  });
  return sources;
}

} // namespace

std::optional<ElementSources> movedElements(const Node &node) {
  if (keepsOrder(node))
    return inOrder(node.result()->type().elements());
  std::optional<Walks> walks = axisWalks(node);
  if (!walks)
    return std::nullopt;
  return walked(*walks, node.operand(0)->type().shape(), node.result()->type().shape());
}

std::optional<ElementSources> movedRows(const Node &node) {
  if (node.operandCount() == 0 || !node.operand(0)->type().isTensor())
    return std::nullopt;
  const Type &from = node.operand(0)->type(), &to = node.result()->type();
  if (from.rank() == 0 || to.rank() == 0 || from.dim(-1) != to.dim(-1) || to.dim(-1) == 0)
    return std::nullopt;
  if (keepsOrder(node))
    return inOrder(to.elements() / to.dim(-1));
  std::optional<Walks> walks = axisWalks(node);
  if (!walks)
    return std::nullopt;
  const AxisWalk &last = walks->back();
  if (last.axis != to.rank() - 1 || last.start != 0 || last.step != 1 || last.interior != 1)
    return std::nullopt;
  walks->pop_back();
  return walked(*walks, from.shape().drop_back(), to.shape().drop_back());
}

ElementSources composed(const ElementSources &sources, const ElementSources &further) {
  ElementSources result(sources.size(), -1);
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i] >= 0)
      result[i] = further[static_cast<size_t>(sources[i])];
  return result;
}

} // namespace fsdpc
