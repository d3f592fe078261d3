// Ops on a table of rows that is split over ranks, for lookups that do not gather the table.
//
// Forward: the ranks' indices are gathered; each rank answers all of them with the rows that it owns, and a
// reduce_scatter of the answers gives each rank the rows that it asked for. Backward: indices and derivatives of rows
// are gathered, and each rank adds those of its own rows. So a lookup of n rows per rank moves ranks * n rows where an
// all_gather and a reduce_scatter of the table would move all of them, and no rank ever holds the table or its
// gradient.
//
// A rank answers for a row of another rank with -0, the one value that changes no bit of any summand (0 + -0 is 0, and
// -0 + -0 is -0). So the answers sum to the row's bits in any order and type.
#include "ir/ops/helpers.h"
#include "ir/ops/index.h"
#include "llvm/ADT/bit.h"

#include <limits>

namespace fsdpc {

namespace {

constexpr llvm::StringRef gatherNames[] = {"shard", "indices"};
constexpr llvm::StringRef scatterNames[] = {"indices", "updates"};

/// The constraints that both ops share; `indices` is the number of the operand.
llvm::Error checkTable(const OpInfo &info, llvm::ArrayRef<Type> operands, unsigned indices, const RowsAttributes &a) {
  if (a.ranks < 1 || a.rows < 1 || a.width < 1)
    return constraintError(info.name, "C1", "ranks, rows and width are 1 or more");
  std::optional<int64_t> elements = checkedElements({a.rows, a.width});
  if (!elements || a.padded < *elements || a.padded % a.ranks != 0 || a.padded / a.ranks % a.width != 0)
    return constraintError(info.name, "C2",
                           llvm::Twine(a.padded) + " elements are no equal shares of whole rows for " +
                               llvm::Twine(a.ranks) + " ranks and hold no " + llvm::Twine(a.rows) + " rows of " +
                               llvm::Twine(a.width));
  if (llvm::Error error = checkIndex(info, "C3", operands, indices))
    return error;
  if (operands[indices].rank() != 1 || operands[indices].dim(0) % a.ranks != 0)
    return constraintError(info.name, "C4",
                           toString(operands[indices]) + " are not as many indices from each of " +
                               llvm::Twine(a.ranks) + " ranks");
  return llvm::Error::success();
}

llvm::Error inferGatherRows(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                            llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(gatherRowsInfo, operands))
    return error;
  const auto &a = attributesOf<RowsAttributes>(attributes);
  if (llvm::Error error = checkTable(gatherRowsInfo, operands, 1, a))
    return error;
  if (llvm::Error error = checkFloat(gatherRowsInfo, "C5", operands, 0))
    return error;
  if (operands[0].shape() != llvm::ArrayRef<int64_t>(a.padded / a.ranks))
    return constraintError("gather_rows", "C5", toString(operands[0]) + " is no rank's share of the table");
  std::optional<int64_t> elements = checkedElements({operands[1].dim(0), a.width});
  return addResult(gatherRowsInfo, "C6", operands[0].dtype(), {elements.value_or(-1)}, results);
}

llvm::Error inferScatterRows(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                             llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(scatterRowsInfo, operands))
    return error;
  const auto &a = attributesOf<RowsAttributes>(attributes);
  if (llvm::Error error = checkTable(scatterRowsInfo, operands, 0, a))
    return error;
  if (llvm::Error error = checkFloat(scatterRowsInfo, "C5", operands, 1))
    return error;
  std::optional<int64_t> elements = checkedElements({operands[0].dim(0), a.width});
  if (!elements || operands[1].shape() != llvm::ArrayRef<int64_t>(*elements))
    return constraintError("scatter_rows", "C5", toString(operands[1]) + " is no row for each index");
  llvm::Expected<DType> dtype = dtypeOfSum(scatterRowsInfo, operands[1].dtype(), a.accumulateF32);
  if (!dtype)
    return dtype.takeError();
  return addResult(scatterRowsInfo, "C6", *dtype, {a.padded / a.ranks}, results);
}

/// The part of the table that this rank owns.
struct OwnRows {
  int64_t first, count, size;
  OwnRows(const RowsAttributes &a, EvaluateContext &context) : size(a.rows) {
    assert(context.environment && "an op that uses the environment is not evaluated alone");
    count = a.padded / a.ranks / a.width;
    first = static_cast<int64_t>(context.environment->axis(a.over.name).memberOf(context.environment->rank())) * count;
  }
  /// The position among this rank's rows; -1: another rank's, or no row.
  int64_t position(double index) const {
    int64_t row = normalisedIndex(index, size);
    return row >= first && row < first + count ? row - first : -1;
  }
};

void evaluateGatherRows(EvaluateContext &context) {
  const auto &a = context.get<RowsAttributes>();
  const OwnRows own(a, context);
  const std::vector<double> &shard = context.operands[0]->values, &indices = context.operands[1]->values;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t row = own.position(indices[i]);
    const double other = normalisedIndex(indices[i], a.rows) < 0 ? std::numeric_limits<double>::quiet_NaN() : -0.0;
    for (int64_t j = 0; j < a.width; ++j)
      context.results[0].values[i * a.width + j] = row < 0 ? other : shard[row * a.width + j];
  }
}

/// Sums by row and rank, then over ranks.
class RowSums {
public:
  RowSums(const RowsAttributes &a, EvaluateContext &context) : a(a), own(a, context), context(context) {
    perRank = static_cast<int64_t>(context.operands[0]->values.size()) / a.ranks;
  }

  void run() {
    std::vector<std::vector<int64_t>> positions(own.count);
    const std::vector<double> &indices = context.operands[0]->values;
    for (size_t i = 0; i < indices.size(); ++i)
      if (const int64_t row = own.position(indices[i]); row >= 0)
        positions[row].push_back(static_cast<int64_t>(i));
    for (int64_t row = 0; row < own.count; ++row)
      for (int64_t j = 0; j < a.width; ++j)
        context.results[0].values[row * a.width + j] = sum(positions[row], 0, a.ranks, j);
  }

private:
  /// Over `count` ranks from `first` on, as a tree in rank order.
  double sum(llvm::ArrayRef<int64_t> positions, int64_t first, int64_t count, int64_t column) const {
    if (positions.empty())
      return 0;
    if (count == 1) {
      double total = 0;
      for (int64_t position : positions)
        total += context.operands[1]->values[position * a.width + column];
      return total;
    }
    const auto left = static_cast<int64_t>(llvm::bit_floor(static_cast<uint64_t>(count - 1)));
    llvm::ArrayRef<int64_t> begin =
        positions.take_while([&](int64_t position) { return position < (first + left) * perRank; });
    return sum(begin, first, left, column) +
           sum(positions.drop_front(begin.size()), first + left, count - left, column);
  }

  const RowsAttributes &a;
  OwnRows own;
  EvaluateContext &context;
  int64_t perRank;
};

void evaluateScatterRows(EvaluateContext &context) { RowSums(context.get<RowsAttributes>(), context).run(); }

/// Reads this rank's part of the looked up rows, and writes an answer for each index.
Cost costOfGatherRows(const Node &node) {
  Cost cost;
  cost.bytesWritten = static_cast<double>(node.result()->type().bytes());
  cost.bytesRead = cost.bytesWritten / static_cast<double>(node.get<RowsAttributes>().ranks) +
                   static_cast<double>(node.operand(1)->type().bytes());
  return cost;
}

} // namespace

const OpInfo gatherRowsInfo = {
    .name = "gather_rows",
    .doc = "This rank's answers to the indices of all ranks of a mesh axis: for each the row of the table that it "
           "names, negative ones from the end, if `shard` holds it, and -0 if another rank's does. A sum over the "
           "ranks gives the rows. (C1) ranks, rows and width are positive. (C2) each rank has an equal share of "
           "`padded` elements, which consists of rows. (C3) indices are i64 or i32. (C4) they have rank 1, as many "
           "from each rank. (C5) the shard is float and this share. (C6) the result fits.",
    .operandNames = gatherNames,
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<RowsAttributes>,
    .infer = inferGatherRows,
    .evaluate = evaluateGatherRows,
    .vjp = notDifferentiable,
    .cost = costOfGatherRows,
    .computeClass = ComputeClass::move,
    .stages = fromSharded,
};

const OpInfo scatterRowsInfo = {
    .name = "scatter_rows",
    .doc = "This rank's share of a table in which the updates of all ranks of a mesh axis are added to zeros, each at "
           "the row that its index names: what reduce_scatter gives of each rank's scatter_add. (C1) to (C4) as "
           "gather_rows. (C5) updates are floats, one row for each index. (C6) the result fits.",
    .operandNames = scatterNames,
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<RowsAttributes>,
    .infer = inferScatterRows,
    .evaluate = evaluateScatterRows,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = fromSharded,
};

} // namespace fsdpc
