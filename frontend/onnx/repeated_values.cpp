#include "frontend/onnx/repeated_values.h"

#include <cmath>
#include <cstring>

namespace fsdpc {

namespace {

/// Number of elements in the dims before and after an axis.
struct Around {
  int64_t outer = 1, inner = 1;
  Around(const Shape &shape, int64_t axis) {
    for (size_t i = 0; i < shape.size(); ++i)
      (static_cast<int64_t>(i) < axis ? outer : inner) *= static_cast<int64_t>(i) == axis ? 1 : shape[i];
  }
};

} // namespace

bool DenseValues::isUniform() const {
  const size_t width = static_cast<size_t>(elementBytes);
  return data.size() <= width || std::memcmp(data.data(), data.data() + width, data.size() - width) == 0;
}

bool repeatsAlong(const DenseValues &values, int64_t axis) {
  const Around around(values.shape, axis);
  const int64_t many = values.shape[axis], bytes = around.inner * values.elementBytes;
  for (int64_t o = 0; o < around.outer; ++o) {
    const uint8_t *first = values.data.data() + o * many * bytes;
    for (int64_t i = 1; i < many; ++i)
      if (std::memcmp(first, first + i * bytes, static_cast<size_t>(bytes)) != 0)
        return false;
  }
  return true;
}

DenseValues firstAlong(const DenseValues &values, int64_t axis) {
  const Around around(values.shape, axis);
  const int64_t step = values.shape[axis] * around.inner * values.elementBytes;
  DenseValues result{values.shape, values.elementBytes, {}};
  result.shape[axis] = 1;
  for (int64_t o = 0; o < around.outer; ++o) {
    const uint8_t *from = values.data.data() + o * step;
    result.data.insert(result.data.end(), from, from + around.inner * values.elementBytes);
  }
  return result;
}

DenseValues moveAxisLast(const DenseValues &values, int64_t axis) {
  const Around around(values.shape, axis);
  const int64_t many = values.shape[axis], width = values.elementBytes;
  DenseValues result{values.shape, width, std::vector<uint8_t>(values.data.size())};
  result.shape.erase(result.shape.begin() + axis);
  result.shape.push_back(many);
  uint8_t *to = result.data.data();
  for (int64_t o = 0; o < around.outer; ++o)
    for (int64_t i = 0; i < around.inner; ++i)
      for (int64_t k = 0; k < many; ++k, to += width)
        std::memcpy(to, values.data.data() + ((o * many + k) * around.inner + i) * width, static_cast<size_t>(width));
  return result;
}

RowsOfTable distinctRows(const DenseValues &values) {
  const int64_t columns = values.shape.back(), rows = values.elements() / columns;
  const size_t bytes = static_cast<size_t>(columns * values.elementBytes);
  RowsOfTable result{{{0, columns}, values.elementBytes, {}}, {}};
  llvm::StringMap<int64_t> known;
  for (int64_t r = 0; r < rows; ++r) {
    llvm::StringRef row(reinterpret_cast<const char *>(values.data.data()) + static_cast<size_t>(r) * bytes, bytes);
    auto [entry, isNew] = known.try_emplace(row, result.rows.shape[0]);
    if (isNew) {
      ++result.rows.shape[0];
      result.rows.data.insert(result.rows.data.end(), row.bytes_begin(), row.bytes_end());
    }
    result.indices.push_back(entry->second);
  }
  return result;
}

namespace {

/// The table row of each distinct row in a window of that size; empty if the indices are not such offsets.
std::vector<int64_t> offsetsOf(llvm::ArrayRef<int64_t> indices, int64_t distinct, int64_t height, int64_t width) {
  const int64_t places = height * width;
  std::vector<int64_t> rows(static_cast<size_t>(distinct), -1), owners(static_cast<size_t>(distinct), -1);
  for (int64_t i = 0; i < places; ++i)
    for (int64_t j = 0; j < places; ++j) {
      const int64_t index = indices[i * places + j], y = i / width - j / width, x = i % width - j % width;
      const int64_t row = (y + height - 1) * (2 * width - 1) + x + width - 1;
      if ((rows[index] >= 0 && rows[index] != row) || (owners[row] >= 0 && owners[row] != index))
        return {};
      rows[index] = row;
      owners[row] = index;
    }
  return rows;
}

} // namespace

void orderByOffsets(RowsOfTable &table) {
  const int64_t positions = static_cast<int64_t>(table.indices.size()), distinct = table.rows.shape[0];
  const int64_t places = std::llround(std::sqrt(static_cast<double>(positions)));
  if (places * places != positions)
    return;
  for (int64_t height = 1; height <= places; ++height) {
    const int64_t width = places / height;
    if (height * width != places || (2 * height - 1) * (2 * width - 1) != distinct)
      continue;
    const std::vector<int64_t> order = offsetsOf(table.indices, distinct, height, width);
    if (order.empty())
      continue;
    const size_t bytes = table.rows.data.size() / static_cast<size_t>(distinct);
    std::vector<uint8_t> ordered(table.rows.data.size());
    for (size_t row = 0; row < order.size(); ++row)
      std::memcpy(ordered.data() + static_cast<size_t>(order[row]) * bytes, table.rows.data.data() + row * bytes,
                  bytes);
    table.rows.data = std::move(ordered);
    for (int64_t &index : table.indices)
      index = order[index];
    return;
  }
}

} // namespace fsdpc
