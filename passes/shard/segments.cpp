#include "passes/shard/segments.h"

#include "passes/shard/placement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include <map>
#include <numeric>
#include <tuple>

namespace fsdpc {

namespace {

constexpr int64_t slotAlignmentBytes = 128;
// A separate gather for the parameters that backward needs must save at least 1/sparedPart of the unit.
constexpr int64_t sparedPart = 4;

/// Properties that the parameters of one segment share.
struct Kind {
  bool isUnsharded = false;
  bool isFrozen = false;
  bool isForwardOnly = false;
  DType dtype = DType::f32;
  DType usedIn = DType::f32;        ///< the type that is gathered; may be a 16-bit copy
  DType reducedIn = DType::f32;     ///< the type that gradients are sent in
  std::vector<std::string> scalars; ///< that the update reads
  std::string table;                ///< the name of a row table, which shares its segment with nothing
  friend auto operator<=>(const Kind &, const Kind &) = default;
};

struct Group {
  int32_t unit = 0;
  Kind kind;
  int64_t bytes = 0;
  std::vector<const Parameter *> members;
};

class SegmentPlanner {
public:
  SegmentPlanner(const Module &module, const SegmentRequest &request) : module(module), request(request) {}

  std::vector<State> run() {
    collectGroups();
    std::vector<State> segments;
    for (const Group &group : bucketed())
      segments.push_back(segmentOf(group));
    return segments;
  }

private:
  void collectGroups() {
    std::map<int32_t, std::map<Kind, Group>> perUnit;
    for (const Parameter &parameter : module.parameters) {
      if (!module.state(parameter.name) || parameter.isBuffer)
        continue;
      int32_t unit = module.unitIndex(parameter.unit);
      Kind kind = kindOf(parameter);
      Group &group = perUnit[unit][kind];
      group.unit = unit;
      group.kind = kind;
      group.bytes += parameter.type.bytes();
      group.members.push_back(&parameter);
    }
    for (auto &[unit, kinds] : perUnit) {
      joinSmallParts(kinds);
      for (auto &[kind, group] : kinds)
        groups.push_back(std::move(group));
    }
  }

  Kind kindOf(const Parameter &parameter) const {
    Placement placement = placementOf(module.units[module.unitIndex(parameter.unit)]);
    Kind kind;
    kind.isUnsharded = parameter.ignored || placement.split == Split::none;
    kind.isFrozen = !request.trained.contains(parameter.name);
    // Only a second gather can be saved.
    kind.isForwardOnly =
        !kind.isUnsharded && placement.copy == UnshardedCopy::perUse && !request.inBackward.contains(parameter.name);
    kind.dtype = parameter.type.dtype();
    auto rounded = request.rounded.find(parameter.name);
    kind.usedIn = rounded == request.rounded.end() ? kind.dtype : rounded->second;
    auto trained = request.trained.find(parameter.name);
    kind.reducedIn = trained == request.trained.end() ? kind.dtype : trained->second;
    kind.scalars = request.scalars.lookup(parameter.name);
    if (request.tables.contains(parameter.name))
      kind.table = parameter.name;
    return kind;
  }

  /// Parameters that backward does not need are gathered with the others if they are few bytes.
  static void joinSmallParts(std::map<Kind, Group> &kinds) {
    for (auto entry = kinds.begin(); entry != kinds.end();) {
      Group &group = entry->second;
      if (!group.kind.isForwardOnly) {
        ++entry;
        continue;
      }
      Kind kind = group.kind;
      kind.isForwardOnly = false;
      auto rest = kinds.find(kind);
      if (rest != kinds.end() && group.bytes > rest->second.bytes / (sparedPart - 1)) {
        ++entry;
        continue;
      }
      Group joined = std::move(group);
      entry = kinds.erase(entry);
      if (rest != kinds.end()) {
        joined.bytes += rest->second.bytes;
        joined.members.insert(joined.members.end(), rest->second.members.begin(), rest->second.members.end());
      }
      joined.kind = kind;
      llvm::sort(joined.members); // in the order of the module
      kinds[kind] = std::move(joined);
    }
  }

  int64_t bucketBytes(const Kind &kind) const {
    return kind.isUnsharded ? request.reduceBucketBytes : request.allGatherBucketBytes;
  }

  std::vector<Group> bucketed() const {
    std::vector<Group> buckets;
    std::map<Kind, size_t> open; ///< per kind, the bucket that can still grow
    for (const Group &group : groups) {
      int64_t limit = bucketBytes(group.kind);
      if (limit == 0) {
        buckets.push_back(group);
        continue;
      }
      for (const Parameter *parameter : group.members) {
        auto found = open.find(group.kind);
        bool fits = found != open.end() && mayShare(buckets[found->second], group) &&
                    buckets[found->second].bytes + parameter->type.bytes() <= limit;
        if (!fits) {
          open[group.kind] = buckets.size();
          buckets.push_back({group.unit, group.kind, 0, {}});
        }
        Group &bucket = buckets[open[group.kind]];
        bucket.bytes += parameter->type.bytes();
        bucket.members.push_back(parameter);
      }
    }
    return buckets;
  }

  /// True for one unit, or for neighbouring units with equal placement.
  bool mayShare(const Group &bucket, const Group &group) const {
    const UnitChoices &a = module.units[bucket.unit].choices, &b = module.units[group.unit].choices;
    int32_t last = module.unitIndex(bucket.members.back()->unit);
    return group.unit - last <= 1 && a.strategy == b.strategy && a.reshardAfterForward == b.reshardAfterForward &&
           a.accumulation == b.accumulation;
  }

  State segmentOf(const Group &group) {
    const Unit &unit = module.units[group.unit];
    State segment;
    segment.role = StateRole::segment;
    segment.unit = unit.name;
    segment.trainable = !group.kind.isFrozen;
    segment.over = group.kind.isUnsharded ? "" : axisOf(module, placementOf(unit).split);
    int64_t ranks = segment.over.empty() ? 1 : module.axis(segment.over)->size;
    int64_t atom = slotAlignmentBytes /
                   std::min({byteSize(group.kind.dtype), byteSize(group.kind.usedIn), byteSize(group.kind.reducedIn)});
    int64_t end = 0;
    for (const Parameter *parameter : group.members) {
      int64_t start = roundUp(end, atom);
      segment.slots.push_back({parameter->name, start, parameter->type.elements()});
      end = start + parameter->type.elements();
    }
    // A shard of a row table consists of whole rows.
    const int64_t row = group.kind.table.empty() ? 1 : end / group.members.front()->type.dim(0);
    segment.paddedElements = roundUp(std::max<int64_t>(end, 1), ranks * std::lcm(atom, row));
    segment.type = Type(group.kind.dtype, {segment.paddedElements / ranks});
    segment.name = freshName(unit, group.kind);
    return segment;
  }

  /// "no_decay" where a scalar is weight_decay.no_decay; nothing for layers, which units are called after already.
  static std::string groupSuffix(const Kind &kind) {
    llvm::SetVector<llvm::StringRef> groups;
    for (llvm::StringRef scalar : kind.scalars)
      if (llvm::StringRef group = scalar.split('.').second.split('.').first; !group.empty())
        groups.insert(group);
    std::string suffix;
    for (llvm::StringRef group : groups)
      if (!group.starts_with("layer"))
        suffix += "." + group.str();
    return suffix;
  }

  std::string freshName(const Unit &unit, const Kind &kind) {
    std::string name = unit.name + (kind.isFrozen ? ".frozen" : ".p");
    if (kind.isUnsharded && placementOf(unit).split != Split::none)
      name += ".ignored";
    if (!kind.table.empty())
      name += ".rows";
    else if (kind.isForwardOnly)
      name += ".forward";
    name += groupSuffix(kind);
    if (kind.dtype != DType::f32)
      name += "." + nameOf(kind.dtype).str();
    // A segment that is used rounded has the plain name; its copy is named after the type.
    if (kind.usedIn == DType::f32 && !request.rounded.empty())
      name += ".f32";
    std::string unique = name;
    for (int i = 1; module.state(unique) || !names.insert(unique).second; ++i)
      unique = name + "." + std::to_string(i);
    return unique;
  }

  const Module &module;
  const SegmentRequest &request;
  std::vector<Group> groups;
  llvm::StringSet<> names;
};

} // namespace

std::vector<State> planSegments(const Module &module, const SegmentRequest &request) {
  return SegmentPlanner(module, request).run();
}

} // namespace fsdpc
