// Finds repeated values in a tensor, the result of expanding a tensor or reading rows of a table.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// A tensor with all its elements, to be reduced to the tensor it was made from.
struct DenseValues {
  Shape shape;
  int64_t elementBytes = 4;
  std::vector<uint8_t> data; ///< row-major

  int64_t elements() const { return checkedElements(shape).value(); }
  /// True if all elements are equal.
  bool isUniform() const;
};

/// True if all slices along the axis are bitwise identical.
bool repeatsAlong(const DenseValues &values, int64_t axis);
/// The first slice along the axis: the dim becomes 1.
DenseValues firstAlong(const DenseValues &values, int64_t axis);
/// Moves the axis to the end. The others keep their order.
DenseValues moveAxisLast(const DenseValues &values, int64_t axis);

/// A tensor as rows of a table: row i of the tensor is row `indices[i]` of `rows`.
struct RowsOfTable {
  DenseValues rows; ///< [distinct, D], in the order of their first occurrence
  std::vector<int64_t> indices;
};
/// Reads the tensor as rows of its last dim. Linear in its size.
RowsOfTable distinctRows(const DenseValues &values);
/// If the N x N indices are those of the offsets between positions of an h x w window (N = h * w), reorders the rows as
/// vision models number offsets: row (y_i - y_j + h - 1) * (2w - 1) + x_i - x_j + w - 1 for positions i and j
/// (torchvision's and timm's relative_position_index; h = 1: offsets in a sequence). Others stay as they are.
void orderByOffsets(RowsOfTable &table);

} // namespace fsdpc
