#include "passes/shard/placement.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral shardAxis = "shard";
constexpr llvm::StringLiteral replicateAxis = "replicate";
constexpr llvm::StringLiteral worldAxis = "world";

constexpr Placement rows[] = {
    {Strategy::noShard, Split::none, UnshardedCopy::always},
    {Strategy::shardOptimizer, Split::all, UnshardedCopy::always},
    {Strategy::hybridShardZero2, Split::shard, UnshardedCopy::forwardToBackward},
    {Strategy::shardGradOp, Split::all, UnshardedCopy::forwardToBackward},
    {Strategy::hybridShard, Split::shard, UnshardedCopy::perUse},
    {Strategy::fullShard, Split::all, UnshardedCopy::perUse},
};

std::string axisNamed(const Module &module, llvm::StringRef name) {
  const MeshAxis *axis = module.axis(name);
  return axis && axis->size > 1 ? name.str() : "";
}

std::string reshardName(int64_t size) { return "reshard_" + llvm::itostr(size); }

/// Ranks of one replica.
llvm::Expected<int64_t> shardDegree(const PipelineOptions &options) {
  int64_t ranks = options.worldSize, shard = options.shardDegree, replicate = options.replicateDegree;
  if (shard < 0 && replicate < 1)
    return llvm::createStringError("--data_parallel_replicate_degree: 1 or more");
  if (shard < 0)
    shard = ranks / replicate;
  else if (replicate <= 1)
    replicate = shard > 0 ? ranks / shard : 0;
  if (shard < 1 || shard * replicate != ranks)
    return llvm::createStringError(
        "a hybrid strategy needs --data_parallel_shard_degree or --data_parallel_replicate_degree whose product is the "
        "world size: " +
        llvm::Twine(options.shardDegree) + " and " + llvm::Twine(options.replicateDegree) + " for " +
        llvm::Twine(ranks) + " ranks");
  return shard;
}

llvm::Error addReshardAxes(const Module &module, int64_t allRanks, int64_t shardRanks, std::vector<MeshAxis> &mesh) {
  for (const Unit &unit : module.units) {
    int64_t size = reshardSizeOf(unit);
    Split split = placementOf(unit).split;
    if (size == 0 || split == Split::none)
      continue;
    int64_t ranks = split == Split::all ? allRanks : shardRanks;
    if (ranks % size != 0)
      return llvm::createStringError("--reshard_after_forward " + llvm::Twine(size) + ": unit '" + unit.name +
                                     "' is split over " + llvm::Twine(ranks) + " ranks, which " + llvm::Twine(size) +
                                     " does not divide");
    std::string name = reshardName(size);
    if (size > 1 && size < ranks && llvm::none_of(mesh, [&](const MeshAxis &axis) { return axis.name == name; }))
      mesh.push_back({name, size});
  }
  return llvm::Error::success();
}

} // namespace

llvm::ArrayRef<Placement> placements() { return rows; }

Placement placementOf(const Unit &unit) {
  const Placement *row =
      llvm::find_if(rows, [&](const Placement &row) { return row.strategy == unit.choices.strategy; });
  assert(row != std::end(rows) && "a unit's strategy is a row of the table");
  Placement placement = *row;
  if (unit.choices.reshardAfterForward.keepsAll() && placement.copy == UnshardedCopy::perUse)
    placement.copy = UnshardedCopy::forwardToBackward;
  if (keepsParameters(unit) && placement.split != Split::none)
    placement.copy = UnshardedCopy::always;
  return placement;
}

bool keepsGradients(const Unit &unit) {
  return unit.choices.accumulation == Accumulation::keepGradients ||
         unit.choices.accumulation == Accumulation::keepBoth;
}

bool keepsParameters(const Unit &unit) {
  return unit.choices.accumulation == Accumulation::keepParameters ||
         unit.choices.accumulation == Accumulation::keepBoth;
}

bool changesAnything(Accumulation accumulation, const Unit &unit) {
  Unit plain = unit, chosen = unit;
  plain.choices.accumulation = Accumulation::reduce;
  chosen.choices.accumulation = accumulation;
  const Placement without = placementOf(plain);
  bool keepsMore = keepsGradients(chosen) && without.split != Split::none;
  return keepsMore || placementOf(chosen).copy != without.copy;
}

int64_t reshardSizeOf(const Unit &unit) {
  return placementOf(unit).copy == UnshardedCopy::perUse ? unit.choices.reshardAfterForward.groupSize : 0;
}

llvm::Expected<std::vector<MeshAxis>> meshFor(const Module &module, const PipelineOptions &options) {
  int64_t ranks = options.worldSize, replica = ranks;
  bool isHybrid = llvm::any_of(module.units, [](const Unit &unit) { return placementOf(unit).split == Split::shard; });
  if (isHybrid)
    if (llvm::Error error = shardDegree(options).moveInto(replica))
      return error;
  std::vector<MeshAxis> mesh = {{shardAxis.str(), replica}};
  if (replica < ranks) {
    mesh.push_back({replicateAxis.str(), ranks / replica, replica});
    mesh.push_back({worldAxis.str(), ranks});
  }
  if (llvm::Error error = addReshardAxes(module, ranks, replica, mesh))
    return error;
  return mesh;
}

std::string axisOfAll(const Module &module) {
  return axisNamed(module, module.axis(worldAxis) ? worldAxis : shardAxis);
}

std::string axisOf(const Module &module, Split split) {
  switch (split) {
  case Split::none: return "";
  case Split::shard: return axisNamed(module, shardAxis);
  case Split::all: return axisOfAll(module);
  }
  return "";
}

std::string axisOfReplicas(const Module &module, Split split) {
  switch (split) {
  case Split::none: return axisOfAll(module);
  case Split::shard: return axisNamed(module, replicateAxis);
  case Split::all: return "";
  }
  return "";
}

std::string axisOfReshard(const Module &module, const Unit &unit) {
  int64_t size = reshardSizeOf(unit);
  return size == 0 ? "" : axisNamed(module, reshardName(size));
}

CollectiveAttributes overAxis(const Module &module, llvm::StringRef axis) {
  return {{axis.str()}, module.axis(axis)->size, -1};
}

} // namespace fsdpc
