// Where the values of a tensor repeat: what expanding and reading rows of a table leaves behind.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// A tensor with all its elements, to be cut down to what it was made from.
struct DenseValues {
  Shape shape;
  int64_t elementBytes = 4;
  std::vector<uint8_t> data; ///< row-major

  int64_t elements() const { return checkedElements(shape).value(); }
  /// Are all elements one value?
  bool isUniform() const;
};

/// Are all slices along the axis the same bytes?
bool repeatsAlong(const DenseValues &values, int64_t axis);
/// The first slice along the axis: the dim becomes 1.
DenseValues firstAlong(const DenseValues &values, int64_t axis);
/// The axis goes last, the others keep their order.
DenseValues moveAxisLast(const DenseValues &values, int64_t axis);

/// A tensor as rows of a table: row i of the tensor is row `indices[i]` of `rows`.
struct RowsOfTable {
  DenseValues rows; ///< [distinct, D], in the order of their first occurrence
  std::vector<int64_t> indices;
};
/// Reads the tensor as rows of its last dim. Linear in its size.
RowsOfTable distinctRows(const DenseValues &values);
/// Where the N x N indices are those of the offsets between the places of an h x w window (N = h * w), the rows take
/// the order that vision models number offsets by: row (y_i - y_j + h - 1) * (2w - 1) + x_i - x_j + w - 1 for places i
/// and j (torchvision's and timm's relative_position_index; h = 1: offsets in a sequence). Others stay as they are.
void orderByOffsets(RowsOfTable &table);

} // namespace fsdpc
