#include "passes/graph/swap_reshape.h"

#include "ir/ops/attributes.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

/// Consecutive axes longer than 1 that map to dims of the result: the smallest groups with equal products.
struct Group {
  int64_t firstRank = 0; ///< position of its first axis among the long axes of the transpose's operand
  Shape resultAxes;      ///< axes of the result, including those of size 1 before the group
};

class Grouping {
public:
  Grouping(const Node &transpose, llvm::ArrayRef<int64_t> shape) : source(transpose.operand(0)->type()), shape(shape) {
    Shape rankOf;
    for (int64_t dim : source.shape())
      rankOf.push_back(dim == 1 ? -1 : longAxes++);
    for (int64_t axis : transpose.get<TransposeAttributes>().permutation)
      if (source.dim(axis) != 1)
        moved.push_back({rankOf[axis], source.dim(axis)});
  }

  /// False if a group's axes are not adjacent in the transpose's operand.
  bool run() {
    size_t next = 0;
    for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size());) {
      Group group;
      if (!take(axis, next, group))
        return false;
      if (group.firstRank >= 0)
        groups.push_back(std::move(group));
      else
        llvm::append_range(groups.back().resultAxes, group.resultAxes);
    }
    return next == moved.size();
  }

  llvm::SmallVector<Group, 4> groups;

private:
  struct Axis {
    int64_t rank, dim;
  };

  /// Consumes result axes and moved axes until their products are equal. firstRank stays -1 for trailing axes of size
  /// 1.
  bool take(int64_t &axis, size_t &next, Group &group) {
    group.firstRank = -1;
    while (axis < static_cast<int64_t>(shape.size()) && shape[axis] == 1)
      group.resultAxes.push_back(axis++);
    if (axis == static_cast<int64_t>(shape.size()))
      return !groups.empty();
    group.firstRank = moved[next].rank;
    int64_t before = moved[next].dim, after = shape[axis];
    group.resultAxes.push_back(axis++);
    int64_t lastRank = moved[next++].rank;
    while (before != after) {
      if (after < before) {
        after *= shape[axis];
        group.resultAxes.push_back(axis++);
        continue;
      }
      if (moved[next].rank != ++lastRank)
        return false;
      before *= moved[next++].dim;
    }
    return true;
  }

  const Type &source;
  llvm::ArrayRef<int64_t> shape;
  llvm::SmallVector<Axis, 4> moved; ///< long axes in the order of the transpose's result
  int64_t longAxes = 0;
};

} // namespace

Value *reshapeBeforeTranspose(const Node &transpose, llvm::ArrayRef<int64_t> shape, Builder &builder) {
  Value *x = transpose.operand(0);
  Grouping grouping(transpose, shape);
  if (x->type().elements() <= 1 || !grouping.run())
    return nullptr;
  llvm::sort(grouping.groups, [](const Group &a, const Group &b) { return a.firstRank < b.firstRank; });
  Shape regrouped;
  Shape permutation(shape.size(), 0);
  for (const Group &group : grouping.groups)
    for (int64_t axis : group.resultAxes) {
      permutation[axis] = static_cast<int64_t>(regrouped.size());
      regrouped.push_back(shape[axis]);
    }
  return builder.transpose(builder.reshape(x, regrouped), permutation);
}

} // namespace fsdpc
