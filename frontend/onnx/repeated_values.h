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

} // namespace fsdpc
