#include "frontend/onnx/zero_state.h"

#include "frontend/onnx/computed_chain.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace fsdpc {

namespace {

bool isPositiveOrOdd(llvm::StringRef op) { return op == "Sigmoid" || op == "Exp" || op == "Neg" || op == "Tanh"; }

/// True if no step, in any order, makes the value zero or not finite.
bool staysNonzero(llvm::ArrayRef<ComputedChain> orders, float value) {
  if (value == 0 || !std::isfinite(value))
    return false;
  return llvm::all_of(orders, [&](const ComputedChain &chain) {
    float x = value;
    return llvm::all_of(chain, [&](const ChainStep &step) {
      x = evaluateChain(step, x);
      return x != 0 && std::isfinite(x);
    });
  });
}

/// True if the columns of a [rows, columns] matrix are linearly independent. Elimination with pivots in doubles.
bool hasIndependentColumns(std::vector<double> matrix, int64_t rows, int64_t columns) {
  constexpr double smallestPivot = 1e-6;
  auto at = [&](int64_t i, int64_t j) -> double & { return matrix[static_cast<size_t>(i * columns + j)]; };
  double largest = 0;
  for (double element : matrix)
    largest = std::isfinite(element) ? std::max(largest, std::fabs(element)) : 0;
  for (int64_t j = 0; j < columns; ++j) {
    int64_t pivot = j;
    for (int64_t i = j; i < rows; ++i)
      if (std::fabs(at(i, j)) > std::fabs(at(pivot, j)))
        pivot = i;
    if (j >= rows || !(std::fabs(at(pivot, j)) > smallestPivot * largest))
      return false;
    std::swap_ranges(&at(pivot, 0), &at(pivot, 0) + columns, &at(j, 0));
    for (int64_t i = j + 1; i < rows; ++i) {
      const double factor = at(i, j) / at(j, j);
      for (int64_t k = j; factor != 0 && k < columns; ++k)
        at(i, k) -= factor * at(j, k);
    }
  }
  return columns > 0;
}

/// The weight as a matrix [outputs, inputs] that maps a row of inputs to `outputs` values, with at most twice as many
/// rows as columns. Empty if the shape does not fit or the elimination would take too long.
std::vector<double> matrixOf(llvm::ArrayRef<float> weight, const Shape &shape, int64_t outputs, int64_t &rows,
                             int64_t &columns) {
  constexpr int64_t maxInputs = 1024;
  if (shape.size() != 2 || (shape[0] != outputs && shape[1] != outputs))
    return {};
  const bool isTransposed = shape[0] != outputs;
  columns = isTransposed ? shape[0] : shape[1];
  rows = std::min(outputs, 2 * columns);
  if (columns > maxInputs)
    return {};
  std::vector<double> matrix;
  matrix.reserve(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      matrix.push_back(weight[static_cast<size_t>(isTransposed ? j * outputs + i : i * columns + j)]);
  return matrix;
}

bool isEveryRow(llvm::ArrayRef<float> tensor, llvm::ArrayRef<float> row) {
  if (row.empty() || tensor.empty() || tensor.size() % row.size() != 0)
    return false;
  for (size_t i = 0; i < tensor.size(); i += row.size())
    if (std::memcmp(&tensor[i], row.data(), row.size() * sizeof(float)) != 0)
      return false;
  return true;
}

} // namespace

llvm::Expected<bool> ZeroState::restoreProduct(const onnx::TensorProto &tensor, const Folding &folding) {
  std::vector<ChainStep> steps;
  for (const std::string &operation : folding.computing)
    if (llvm::StringRef op = invertibleOp(operation); isPositiveOrOdd(op))
      steps.push_back({op.str(), std::nullopt, false});
  const onnx::TensorProto *source = values.parameter(folding.parameter);
  const std::vector<ComputedChain> orders = ordersOf(steps, /*isLastKnown=*/false);
  const bool isProduct = llvm::count(folding.computing, "mul") == 1 && steps.size() + 1 == folding.computing.size() &&
                         !llvm::is_contained(folding.moving, "cumsum");
  const bool isForeign = !values.foreignReader(tensor, folding.parameter).empty();
  if (!source || !isProduct || isForeign || (orders.empty() && !steps.empty()))
    return false;
  llvm::Expected<std::optional<std::vector<float>>> stored = values.floats(tensor);
  if (!stored || !*stored)
    return stored ? llvm::Expected<bool>(false) : stored.takeError();
  llvm::Expected<std::optional<std::vector<float>>> known = values.floats(*source);
  if (!known || !*known)
    return known ? llvm::Expected<bool>(false) : known.takeError();
  const bool isZero = llvm::all_of(**stored, [](float value) { return value == 0; });
  if (!isZero || !llvm::all_of(**known, [&](float value) { return staysNonzero(orders, value); }))
    return false;
  const std::string name = tensor.name() + ".constant";
  values.edit.addTensor(
      name, tensor.data_type(), shapeOf(tensor),
      llvm::ArrayRef(reinterpret_cast<const uint8_t *>((*stored)->data()), (*stored)->size() * sizeof(float)), "");
  values.edit.replaceInitializer(tensor.name(), name, {});
  values.repair.remarks.push_back("'" + tensor.name() + "' is a product of '" + folding.parameter +
                                  "' and zero: a constant");
  return true;
}

llvm::Expected<bool> ZeroState::restoreLinear(const onnx::TensorProto &tensor, const Folding &folding,
                                              llvm::ArrayRef<std::string> parameters) {
  const bool isLinear =
      llvm::count(folding.computing, "linear") == 1 && llvm::all_of(folding.computing, [](llvm::StringRef operation) {
        return operation == "linear" || operation == "getitem";
      });
  const bool isForeign = parameters.empty() || !values.foreignReader(tensor, parameters.front()).empty();
  if (!isLinear || isForeign || parameters.size() != 2 || tensor.dims_size() < 1 || folding.readsRows)
    return false;
  const bool isBiasFirst = leafOf(parameters[0]).contains("bias");
  const std::string &weightName = parameters[isBiasFirst ? 1 : 0];
  const onnx::TensorProto *bias = values.parameter(parameters[isBiasFirst ? 0 : 1]),
                          *weight = values.parameter(weightName);
  weight = weight ? weight : values.moved(weightName);
  if (!bias || !weight || bias->dims_size() != 1)
    return false;
  std::optional<std::vector<float>> contents[3];
  const onnx::TensorProto *tensors[] = {&tensor, bias, weight};
  for (int i = 0; i < 3; ++i) {
    llvm::Expected<std::optional<std::vector<float>>> read = values.floats(*tensors[i]);
    if (!read)
      return read.takeError();
    if (!*read)
      return false;
    contents[i] = std::move(*read);
  }
  if (bias->dims(0) != tensor.dims(tensor.dims_size() - 1) || !isEveryRow(*contents[0], *contents[1]))
    return false;
  int64_t rows = 0, columns = 0;
  std::vector<double> matrix = matrixOf(*contents[2], shapeOf(*weight), bias->dims(0), rows, columns);
  if (matrix.empty() || !hasIndependentColumns(std::move(matrix), rows, columns))
    return false;
  std::string value = bias->name();
  if (shapeOf(*bias) != shapeOf(tensor))
    value = values.edit.addExpand(value, shapeOf(tensor));
  values.edit.replaceInitializer(tensor.name(), value, {});
  values.repair.remarks.push_back("'" + tensor.name() + "' is the linear layer of '" + bias->name() +
                                  "' on a zero state: its bias");
  return true;
}

} // namespace fsdpc
