#include "passes/cost/cost_model.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include <algorithm>

namespace fsdpc {

namespace {

double loopOperations(const Node &node) {
  auto elements = static_cast<double>(node.result()->type().elements());
  if (node.op() != Op::fused)
    return elements * infoOf(node).element.operations;
  double perElement = 0;
  for (const Expression::Step &step : node.get<FusedAttributes>().body.steps)
    perElement += infoOf(step.op).element.operations;
  return elements * perElement;
}

bool computesInHalf(const Node &node) {
  return llvm::any_of(node.operands(),
                      [](const Value *x) { return x->type().isTensor() && isHalf(x->type().dtype()); });
}

/// Also batch_sum, before it becomes an all_reduce: the selection of saved values queries it.
bool isAllReduce(const Node &node) {
  return node.op() == Op::allReduce || node.op() == Op::allReduceStart || node.op() == Op::batchSum;
}

/// "all_gather.start" -> "all_gather"
llvm::StringRef collectiveName(const Node &node) { return infoOf(node).name.split('.').first; }

/// The group of a collective in terms of links.
struct Group {
  int64_t ranks = 1;
  int64_t nodes = 1; ///< that the group spans
};

/// batch_sum names no axis. Its ranks are consecutive, and all of them unless it gives a count.
Group groupOfBatchSum(const Node &node, const Hardware &hardware) {
  const int64_t ranks = node.get<BatchSumAttributes>().ranks;
  Group group{ranks > 0 ? ranks : std::max<int64_t>(1, node.function()->module()->worldSize()), 1};
  if (hardware.ranksPerNode > 0)
    group.nodes = (group.ranks + hardware.ranksPerNode - 1) / hardware.ranksPerNode;
  return group;
}

Group groupOf(const Node &node, const Hardware &hardware) {
  if (node.op() == Op::batchSum)
    return groupOfBatchSum(node, hardware);
  Group group{node.get<CollectiveAttributes>().ranks, 1};
  const Module &module = *node.function()->module();
  const MeshAxis *axis = module.axis(node.get<CollectiveAttributes>().over.name);
  int64_t perNode = hardware.ranksPerNode;
  if (!axis || perNode <= 0 || module.worldSize() <= perNode || perNode % (axis->size * axis->stride) == 0)
    return group;
  int64_t members = std::max<int64_t>(1, perNode / axis->stride);
  group.nodes = (group.ranks + members - 1) / members;
  return group;
}

/// Bytes that one rank moves.
double movedBytes(const Node &node, Algorithm algorithm, int64_t ranks) {
  auto bytes = static_cast<double>(std::max(node.operand(0)->type().bytes(), node.result()->type().bytes()));
  auto count = static_cast<double>(ranks);
  if (algorithm == Algorithm::peerRead)
    return isAllReduce(node) ? bytes * count : bytes;
  return bytes * (count - 1) / count * (isAllReduce(node) ? 2 : 1);
}

/// Hops between nodes cost `far`, hops within one `near` (nccl src/graph/tuning.cc: nsteps - nInterSteps and
/// nInterSteps).
double hopMicroseconds(const Node &node, const Group &group, double near, double far) {
  auto between = static_cast<double>(group.nodes - 1), all = static_cast<double>(group.ranks - 1);
  double rounds = isAllReduce(node) ? 2 : 1;
  return rounds * ((all - between) * near + between * far);
}

double slowedDown(const Link &link, double bytes) {
  return link.slowMicroseconds + (link.slowBytesPerMicrosecond > 0 ? bytes / link.slowBytesPerMicrosecond : 0);
}

} // namespace

std::optional<ComputeClass> computeClassOf(const Node &node) {
  const ComputeClass own = infoOf(node).computeClass;
  return own == ComputeClass::none ? std::nullopt : std::optional(own);
}

double CostModel::nodeMicroseconds(const Node &node) const {
  std::optional<ComputeClass> computeClass = computeClassOf(node);
  if (!computeClass)
    return 0;
  const ComputeRate &rate = hardware.rateOf(*computeClass);
  Cost cost = infoOf(node).cost(node);
  if (node.schedule.stream == Stream::host && hardware.host.computeBytesPerMicrosecond > 0)
    return hardware.host.alphaMicroseconds +
           (cost.bytesRead + cost.bytesWritten) / hardware.host.computeBytesPerMicrosecond;
  double flops = *computeClass == ComputeClass::loop ? loopOperations(node) : cost.flops;
  double flopsPerMicrosecond = computesInHalf(node) ? rate.halfFlopsPerMicrosecond : rate.flopsPerMicrosecond;
  double roofline = std::max(flops / (flopsPerMicrosecond * static_cast<double>(threads)),
                             (cost.bytesRead + cost.bytesWritten) / rate.bytesPerMicrosecond);
  return std::max(hardware.floorMicroseconds, rate.overheadMicroseconds + roofline);
}

double CostModel::microseconds(const Node &node) const {
  if (infoOf(node).has(collective))
    return collectiveMicroseconds(node);
  return infoOf(node).has(startsTransfer) ? copyMicroseconds(node) : nodeMicroseconds(node);
}

double CostModel::copyMicroseconds(const Node &start) const {
  return copyMicroseconds(start.operand(0)->type().bytes());
}

double CostModel::copyMicroseconds(int64_t bytes) const {
  return hardware.host.alphaMicroseconds + static_cast<double>(bytes) / hardware.host.bytesPerMicrosecond;
}

double CostModel::exposedCopyMicroseconds(int64_t bytes, double overlappedMicroseconds) const {
  return std::max(copyMicroseconds(bytes) - (inlineStreams ? 0 : overlappedMicroseconds), 0.0);
}

double CostModel::collectiveMicroseconds(const Node &start) const {
  Group group = groupOf(start, hardware);
  if (networkOnly)
    group.nodes = group.ranks;
  if (group.ranks <= 1)
    return 0;
  bool crosses = group.nodes > 1;
  const Link &link = crosses ? hardware.network : hardware.nodeLocal;
  double bytes = movedBytes(start, link.algorithm, group.ranks);
  // Ranks of a group that share a node also share its adapters: the ring enters and leaves the node through each.
  double adapters = crosses ? static_cast<double>(group.ranks) / static_cast<double>(group.nodes) : 1;
  double best = -1;
  for (size_t i = 0; i < link.rates.size(); ++i) {
    const CollectiveRate &rate = link.rates[i];
    if (!rate.op.empty() && rate.op != collectiveName(start))
      continue;
    const CollectiveRate &within = hardware.nodeLocal.rates[std::min(i, hardware.nodeLocal.rates.size() - 1)];
    double bandwidth = rate.bytesPerMicrosecond * adapters;
    if (crosses && adapters > 1)
      bandwidth = std::min(bandwidth, within.bytesPerMicrosecond);
    double time = rate.alphaMicroseconds + bytes / bandwidth +
                  hopMicroseconds(start, group, within.hopMicroseconds, rate.hopMicroseconds);
    best = best < 0 ? time : std::min(best, time);
  }
  assert(best >= 0 && "a link has a rate for every collective");
  return best + slowedDown(link, bytes);
}

} // namespace fsdpc
