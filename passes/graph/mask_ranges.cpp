#include "passes/graph/mask_ranges.h"

#include "passes/graph/constant_band.h"

namespace fsdpc {

Linear along(const Index &index, double start, double step, int64_t rank) {
  Linear linear{start + step * static_cast<double>(index.offset), llvm::SmallVector<double, 5>(rank)};
  if (index.axis != noAxis)
    linear.steps[static_cast<size_t>(index.axis)] = step * static_cast<double>(index.step);
  return linear;
}

Meaning rangeOf(const Dense &dense, const Type &type, const Indices &indices, int64_t rank) {
  int64_t first = 0, count = 1, stride = 1;
  llvm::SmallVector<std::pair<int64_t, int64_t>, 5> axes; // size and stride
  llvm::SmallVector<double, 5> steps;
  Linear linear{0, llvm::SmallVector<double, 5>(rank)};
  if (type.dtype() == DType::boolean || type.elements() > maxRangeElements)
    return {};
  for (int64_t axis = type.rank(); axis-- > 0; stride *= type.dim(axis)) {
    const Index &index = indices[static_cast<size_t>(axis)];
    if (index.axis == unknownAxis || (index.axis == noAxis && index.offset >= type.dim(axis)))
      return {};
    if (index.axis == noAxis) {
      first += index.offset * stride;
    } else if (type.dim(axis) > 1) {
      axes.push_back({type.dim(axis), stride});
      count *= type.dim(axis);
    }
  }
  for (const auto &[size, apart] : axes)
    steps.push_back(dense.at(first + apart) - dense.at(first));
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = first, rest = i;
    double expected = dense.at(first);
    for (auto [axis, step] : llvm::zip(axes, steps)) {
      expected += step * static_cast<double>(rest % axis.first);
      at += rest % axis.first * axis.second;
      rest /= axis.first;
    }
    if (dense.at(at) != expected)
      return {};
  }
  linear.constant = dense.at(first);
  size_t next = 0;
  for (int64_t axis = type.rank(); axis-- > 0;) {
    const Index &index = indices[static_cast<size_t>(axis)];
    if (index.axis == noAxis || type.dim(axis) == 1)
      continue;
    linear = sumOf(linear, along(index, 0, steps[next++], rank), 1);
  }
  return linear;
}

Meaning bandOf(const Dense &dense, const Type &type, const Indices &indices, int64_t rank) {
  const size_t last = indices.size() - 1;
  const auto isWhole = [&](size_t of, int64_t axis) {
    return indices[of].axis == axis && indices[of].offset == 0 && indices[of].step == 1;
  };
  if (type.rank() < 2 || !isWhole(last - 1, rank - 2) || !isWhole(last, rank - 1))
    return {};
  std::optional<ConstantBand> band = constantBandOf(dense, type.elements(), type.dim(-2), type.dim(-1));
  if (!band)
    return {};
  Visibility visible;
  visible.lowest = band->lowest;
  visible.highest = band->highest;
  return Choice{visible, band->inside, band->outside};
}

} // namespace fsdpc
