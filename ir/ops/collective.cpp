// Ops between ranks. A sum over ranks is a balanced binary tree in rank order, the same in the evaluator and in every
// transport: sum(r0 .. rn-1) = sum(first p) + sum(the other n - p), where p is the largest power of two below n.
#include "ir/ops/helpers.h"
#include "llvm/ADT/bit.h"

namespace fsdpc {

namespace {

constexpr llvm::StringRef shardNames[] = {"shard"};
constexpr llvm::StringRef fullNames[] = {"full"};
constexpr llvm::StringRef futureNames[] = {"future"};

/// The shape rule of a collective: from the operand's type to the result's.
using Delivers = llvm::Error (*)(const OpInfo &, const Type &, const CollectiveAttributes &,
                                 llvm::SmallVectorImpl<Type> &);

llvm::Error checkSummable(const OpInfo &info, const Type &x) {
  if (isFloat(x.dtype()) || x.dtype() == DType::i64 || x.dtype() == DType::i32)
    return llvm::Error::success();
  return constraintError(info.name, "C3", "sums over ranks are of floats, i64 or i32, not " + toString(x));
}

llvm::Error checkFlat(const OpInfo &info, const Type &x) {
  if (x.rank() == 1)
    return llvm::Error::success();
  return constraintError(info.name, "C2", "the operand has rank 1 but is " + toString(x));
}

llvm::Error deliverGathered(const OpInfo &info, const Type &shard, const CollectiveAttributes &attributes,
                            llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkFlat(info, shard))
    return error;
  std::optional<int64_t> elements = checkedElements({shard.dim(0), attributes.ranks});
  if (!elements)
    return constraintError(info.name, "C4",
                           llvm::Twine(attributes.ranks) + " times " + toString(shard) + " has too many elements");
  return addResult(info, "C4", shard.dtype(), {*elements}, results);
}

llvm::Error deliverShare(const OpInfo &info, const Type &full, const CollectiveAttributes &attributes,
                         llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkFlat(info, full))
    return error;
  if (full.dim(0) % attributes.ranks != 0)
    return constraintError(info.name, "C4",
                           toString(full) + " does not divide by " + llvm::Twine(attributes.ranks) + " ranks");
  results.push_back(full.withShape({full.dim(0) / attributes.ranks}));
  return llvm::Error::success();
}

llvm::Error deliverScattered(const OpInfo &info, const Type &full, const CollectiveAttributes &attributes,
                             llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = deliverShare(info, full, attributes, results))
    return error;
  return checkSummable(info, full);
}

llvm::Error deliverReduced(const OpInfo &info, const Type &x, const CollectiveAttributes &,
                           llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkSummable(info, x))
    return error;
  results.push_back(x);
  return llvm::Error::success();
}

template <const OpInfo &info, Delivers deliver>
llvm::Error infer(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                  llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(info, operands))
    return error;
  const auto &a = attributesOf<CollectiveAttributes>(attributes);
  if (a.ranks < 1)
    return constraintError(info.name, "C1", "there is one rank or more, not " + llvm::Twine(a.ranks));
  if (llvm::Error error = deliver(info, operands[0], a, results))
    return error;
  if (info.has(startsTransfer))
    results.back() = Type::future(results.back());
  return llvm::Error::success();
}

llvm::Error inferBatchSum(llvm::ArrayRef<Type> operands, const AttributesBase *attributes,
                          llvm::SmallVectorImpl<Type> &results) {
  if (llvm::Error error = checkOperands(batchSumInfo, operands))
    return error;
  if (int64_t ranks = attributesOf<BatchSumAttributes>(attributes).ranks; ranks < 0)
    return constraintError(batchSumInfo.name, "C1", "ranks are not negative, but are " + llvm::Twine(ranks));
  return deliverReduced(batchSumInfo, operands[0], {}, results);
}

llvm::Error inferWait(llvm::ArrayRef<Type> operands, const AttributesBase *, llvm::SmallVectorImpl<Type> &results) {
  if (operands.size() != 1 || !operands[0].isFuture())
    return constraintError(waitInfo.name, "C1",
                           "the operand is one future" + (operands.empty() ? "" : ", not " + toString(operands[0])));
  results.push_back(operands[0].delivered());
  return llvm::Error::success();
}

double treeSum(llvm::ArrayRef<HostTensor> parts, size_t element) {
  if (parts.size() == 1)
    return parts[0].values[element];
  size_t left = llvm::bit_floor(parts.size() - 1);
  return treeSum(parts.take_front(left), element) + treeSum(parts.drop_front(left), element);
}

/// The mesh axis of the collective, in the mesh of the evaluated module.
const MeshAxis &axisOf(EvaluateContext &context) {
  assert(context.environment && "an op that uses the environment is not evaluated alone");
  return context.environment->axis(context.get<CollectiveAttributes>().over.name);
}

/// Sends this rank's operand and receives those of all ranks. The name detects ranks that issue different collectives.
std::vector<HostTensor> exchange(EvaluateContext &context, const llvm::Twine &name) {
  assert(context.environment && "an op that uses the environment is not evaluated alone");
  return context.environment->exchange(name.str(), *context.operands[0]);
}

template <const OpInfo &info>
std::vector<HostTensor> exchangeOf(EvaluateContext &context) {
  const auto &attributes = context.get<CollectiveAttributes>();
  const MeshAxis &axis = axisOf(context);
  assert(axis.size == attributes.ranks && "verify compares the ranks with the mesh");
  std::vector<HostTensor> all = exchange(context, info.name + "#" + llvm::Twine(attributes.id));
  std::vector<HostTensor> parts;
  for (int64_t member = 0; member < axis.size; ++member)
    parts.push_back(std::move(all[axis.rankOf(context.environment->rank(), member)]));
  return parts;
}

void sumInto(HostTensor &result, llvm::ArrayRef<HostTensor> parts, size_t first = 0) {
  for (size_t i = 0; i < result.values.size(); ++i)
    result.values[i] = treeSum(parts, first + i);
}

template <const OpInfo &info>
void evaluateGather(EvaluateContext &context) {
  auto to = context.results[0].values.begin();
  for (const HostTensor &shard : exchangeOf<info>(context))
    to = llvm::copy(shard.values, to);
}

template <const OpInfo &info>
void evaluateScatter(EvaluateContext &context) {
  std::vector<HostTensor> parts = exchangeOf<info>(context);
  size_t member = axisOf(context).memberOf(context.environment->rank());
  sumInto(context.results[0], parts, member * context.results[0].values.size());
}

template <const OpInfo &info>
void evaluateReduce(EvaluateContext &context) {
  sumInto(context.results[0], exchangeOf<info>(context));
}

void evaluateBatchSum(EvaluateContext &context) {
  std::vector<HostTensor> all = exchange(context, batchSumInfo.name);
  llvm::ArrayRef<HostTensor> parts = all;
  if (int64_t ranks = context.get<BatchSumAttributes>().ranks)
    parts = parts.slice(context.environment->rank() / ranks * ranks, ranks);
  sumInto(context.results[0], parts);
}

void evaluateTakeShard(EvaluateContext &context) {
  size_t member = axisOf(context).memberOf(context.environment->rank());
  std::vector<double> &share = context.results[0].values;
  std::copy_n(context.operands[0]->values.begin() + member * share.size(), share.size(), share.begin());
}

void evaluateWait(EvaluateContext &context) { context.results[0].values = context.operands[0]->values; }

/// Every rank's result depends on this rank's operand, so its cotangent is the sum of all ranks' cotangents.
void differentiateBatchSum(VjpContext &context) {
  if (Value *dy = context.resultCotangents[0]; dy && context.needed[0])
    context.operandCotangents[0] =
        context.builder.create(Op::batchSum, {dy}, context.node.get<BatchSumAttributes>())->result();
}

/// The bytes that this rank reads of all ranks' operands, including its own.
Cost costOfExchange(const Node &node, double flopsPerElement, bool whole) {
  const auto &attributes = node.get<CollectiveAttributes>();
  auto ranks = static_cast<double>(attributes.ranks);
  auto bytes = static_cast<double>(node.operand(0)->type().bytes());
  Cost cost;
  cost.flops = flopsPerElement * static_cast<double>(node.result()->type().elements());
  cost.bytesRead = whole ? ranks * bytes : bytes;
  cost.bytesWritten = static_cast<double>(node.result()->type().bytes());
  return cost;
}

Cost costOfGather(const Node &node) { return costOfExchange(node, 0, true); }
// Reads one shard of each rank's operand, of the result's size.
Cost costOfScatter(const Node &node) {
  return costOfExchange(node, static_cast<double>(node.get<CollectiveAttributes>().ranks - 1), false);
}
Cost costOfReduce(const Node &node) {
  return costOfExchange(node, static_cast<double>(node.get<CollectiveAttributes>().ranks - 1), true);
}

} // namespace

const OpInfo batchSumInfo = {
    .name = "batch_sum",
    .doc = "The sum of x over all ranks and, in prologue and micro_step, micro-steps: what spans the batch. With "
           "ranks, over those of one micro-step, which are so many. (C1) ranks are not negative. (C3) x is float, i64 "
           "or i32.",
    .operandNames = namesX,
    .traits = pure | collective | usesEnvironment,
    .makeAttributes = makeAttributes<BatchSumAttributes>,
    .infer = inferBatchSum,
    .evaluate = evaluateBatchSum,
    .vjp = differentiateBatchSum,
    .cost = costOfTypes,
    .computeClass = ComputeClass::none,
    .stages = onlyTrain,
};

const OpInfo allGatherInfo = {
    .name = "all_gather",
    .doc = "The shards of all ranks of a mesh axis, one after the other in rank order. (C1) one rank or more. (C2) the "
           "operand has rank "
           "1. (C4) the result fits.",
    .operandNames = shardNames,
    .traits = collective | usesEnvironment,
    .makeAttributes = makeAttributes<CollectiveAttributes>,
    .infer = infer<allGatherInfo, deliverGathered>,
    .evaluate = evaluateGather<allGatherInfo>,
    .vjp = notDifferentiable,
    .cost = costOfGather,
    .computeClass = ComputeClass::none,
    .stages = onlySharded,
};

const OpInfo takeShardInfo = {
    .name = "take_shard",
    .doc = "This rank's equal share of full, in memory of its own: what an all_gather over the same axis puts together "
           "again. (C1) one rank or more. (C2) the operand has rank 1. (C4) it divides by the ranks.",
    .operandNames = fullNames,
    .traits = usesEnvironment,
    .makeAttributes = makeAttributes<CollectiveAttributes>,
    .infer = infer<takeShardInfo, deliverShare>,
    .evaluate = evaluateTakeShard,
    .vjp = notDifferentiable,
    .cost = costOfTypes,
    .computeClass = ComputeClass::move,
    .stages = fromSharded,
};

const OpInfo reduceScatterInfo = {
    .name = "reduce_scatter",
    .doc = "This rank's equal share of the sum of full over the ranks of a mesh axis. (C1) one rank or more. (C2) the "
           "operand has rank 1. "
           "(C3) it is float, i64 or i32. (C4) it divides by the ranks.",
    .operandNames = fullNames,
    .traits = collective | usesEnvironment,
    .makeAttributes = makeAttributes<CollectiveAttributes>,
    .infer = infer<reduceScatterInfo, deliverScattered>,
    .evaluate = evaluateScatter<reduceScatterInfo>,
    .vjp = notDifferentiable,
    .cost = costOfScatter,
    .computeClass = ComputeClass::none,
    .stages = onlySharded,
};

const OpInfo allReduceInfo = {
    .name = "all_reduce",
    .doc = "The sum of x over the ranks of a mesh axis, on each of them. (C1) one rank or more. (C3) x is float, i64 "
           "or i32.",
    .operandNames = namesX,
    .traits = collective | usesEnvironment,
    .makeAttributes = makeAttributes<CollectiveAttributes>,
    .infer = infer<allReduceInfo, deliverReduced>,
    .evaluate = evaluateReduce<allReduceInfo>,
    .vjp = notDifferentiable,
    .cost = costOfReduce,
    .computeClass = ComputeClass::none,
    .stages = onlySharded,
};

const OpInfo allGatherStartInfo = {
    .name = "all_gather.start",
    .doc = "Starts an all_gather; a wait delivers its result. (C1), (C2), (C4) as all_gather.",
    .operandNames = shardNames,
    .traits = collective | startsTransfer | usesEnvironment,
    .makeAttributes = makeAttributes<CollectiveAttributes>,
    .infer = infer<allGatherStartInfo, deliverGathered>,
    .evaluate = evaluateGather<allGatherStartInfo>,
    .vjp = notDifferentiable,
    .cost = costOfGather,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

const OpInfo reduceScatterStartInfo = {
    .name = "reduce_scatter.start",
    .doc = "Starts a reduce_scatter; a wait delivers its result. (C1) to (C4) as reduce_scatter.",
    .operandNames = fullNames,
    .traits = collective | startsTransfer | usesEnvironment,
    .makeAttributes = makeAttributes<CollectiveAttributes>,
    .infer = infer<reduceScatterStartInfo, deliverScattered>,
    .evaluate = evaluateScatter<reduceScatterStartInfo>,
    .vjp = notDifferentiable,
    .cost = costOfScatter,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

const OpInfo allReduceStartInfo = {
    .name = "all_reduce.start",
    .doc = "Starts an all_reduce; a wait delivers its result. (C1), (C3) as all_reduce.",
    .operandNames = namesX,
    .traits = collective | startsTransfer | usesEnvironment,
    .makeAttributes = makeAttributes<CollectiveAttributes>,
    .infer = infer<allReduceStartInfo, deliverReduced>,
    .evaluate = evaluateReduce<allReduceStartInfo>,
    .vjp = notDifferentiable,
    .cost = costOfReduce,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

const OpInfo waitInfo = {
    .name = "wait",
    .doc = "The tensor of a started collective: this rank's result is complete and no rank reads this rank's operand "
           "any more. (C1) the "
           "operand is one future.",
    .operandNames = futureNames,
    .infer = inferWait,
    .evaluate = evaluateWait,
    .vjp = notDifferentiable,
    .cost = costNothing,
    .computeClass = ComputeClass::none,
    .stages = fromAsync,
};

} // namespace fsdpc
