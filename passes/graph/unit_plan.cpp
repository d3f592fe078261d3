#include "passes/graph/unit_plan.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

llvm::StringRef parentOf(llvm::StringRef path) {
  size_t dot = path.rfind('.');
  return dot == llvm::StringRef::npos ? llvm::StringRef() : path.take_front(dot);
}

bool isWithinModule(llvm::StringRef path, llvm::StringRef module) {
  return path == module || (path.size() > module.size() && path.starts_with(module) && path[module.size()] == '.');
}

std::string listed(llvm::ArrayRef<std::string> names) {
  constexpr size_t maxListed = 40;
  std::string text = llvm::join(names.take_front(maxListed), ", ");
  return names.size() <= maxListed ? text : text + ", ... (" + std::to_string(names.size()) + ")";
}

std::string commonPath(llvm::ArrayRef<const UsedParameter *> parameters) {
  llvm::StringRef common = parameters.front()->module;
  for (const UsedParameter *parameter : parameters)
    while (!common.empty() && !isWithinModule(parameter->module, common))
      common = parentOf(common);
  return common.str();
}

int32_t UnitPlan::blockAround(llvm::StringRef path) const {
  for (; !path.empty(); path = parentOf(path))
    if (auto found = ofBlock.find(path); found != ofBlock.end())
      return found->second;
  return -1;
}

namespace {

// By size: about this many units, as equal as module boundaries allow ...
constexpr int64_t unitsBySize = 8;
// ... and anything smaller than 1/smallestPart of one gets no separate collective.
constexpr int64_t smallestPart = 16;

class Planner {
public:
  Planner(llvm::ArrayRef<UsedParameter> parameters, const PipelineOptions &options)
      : parameters(parameters), options(options) {}

  void byBlocks(llvm::ArrayRef<std::string> blocks, llvm::StringRef source);
  void bySize(int64_t unitElements, bool largeAlone);
  void asOne() {
    int32_t unit = addUnit(freshName("model"), "all");
    for (const UsedParameter &parameter : parameters)
      plan.ofParameter[parameter.name] = unit;
  }

  UnitPlan plan;

private:
  struct OwnedParameters {
    std::vector<const UsedParameter *> members;
    int64_t elements = 0;
  };

  std::string freshName(const std::string &name) {
    std::string unique = name;
    for (int i = 2; !names.insert(unique).second; ++i)
      unique = name + "_" + std::to_string(i);
    return unique;
  }
  int32_t addUnit(std::string name, llvm::StringRef source) {
    plan.units.push_back({std::move(name), source.str(), options.choices});
    return static_cast<int32_t>(plan.units.size()) - 1;
  }
  int32_t blockUnit(const UsedParameter &parameter, const std::string &block, llvm::StringRef source);
  int32_t sectionOf(int32_t unit);
  void place(const UsedParameter &parameter, int32_t unit) {
    plan.ofParameter[parameter.name] = unit;
    if (!parameter.module.empty())
      plan.ofModule.try_emplace(parameter.module, unit);
  }
  void nameGaps();

  llvm::ArrayRef<UsedParameter> parameters;
  const PipelineOptions &options;
  llvm::StringSet<> names;
  std::vector<std::string> blockOf; ///< by unit, for block policies: the module path; empty if outside blocks
  llvm::MapVector<int32_t, std::vector<const UsedParameter *>> gaps; ///< unit -> parameters outside blocks
};

// ---- Blocks

/// The unit of the block that the parameter belongs to or is first used in; -1 outside blocks.
int32_t Planner::blockUnit(const UsedParameter &parameter, const std::string &block, llvm::StringRef source) {
  if (block.empty())
    return plan.blockAround(parameter.userScope);
  auto [entry, isNew] = plan.ofBlock.try_emplace(block, -1);
  if (isNew)
    entry->second = addUnit(block, !source.empty() ? source : parameter.isNamed ? "names" : "name_scopes");
  return entry->second;
}

/// The unit of the next nodes of `unit`: after the units of blocks inside it, if it has reached them.
int32_t Planner::sectionOf(int32_t unit) {
  int32_t latest = static_cast<int32_t>(plan.units.size()) - 1;
  std::vector<int32_t> &behind = plan.continuations[unit];
  bool wentInside = latest != unit && (behind.empty() || behind.back() != latest) && !blockOf[latest].empty() &&
                    isWithinModule(blockOf[latest], blockOf[unit]);
  if (wentInside) {
    behind.push_back(addUnit(freshName(blockOf[unit] + ".rest"), plan.units[unit].source));
    blockOf.push_back(blockOf[unit]);
  }
  return behind.empty() ? unit : behind.back();
}

void Planner::byBlocks(llvm::ArrayRef<std::string> blocks, llvm::StringRef source) {
  for (const std::string &block : blocks)
    names.insert(block);
  int32_t gap = -1;
  for (size_t i = 0; i < parameters.size(); ++i) {
    size_t unitsBefore = plan.units.size();
    int32_t unit = blockUnit(parameters[i], blocks[i], source);
    if (plan.units.size() > unitsBefore)
      blockOf.push_back(blocks[i]);
    if (unit >= 0) {
      plan.ofParameter[parameters[i].name] = unit;
      if (int32_t section = sectionOf(unit); section != unit)
        plan.sectionOf[parameters[i].name] = section;
    }
    if (plan.units.size() > unitsBefore)
      gap = -1; // parameters after a new block start another gap
    if (unit >= 0)
      continue;
    if (gap < 0) {
      gap = addUnit("", "names");
      blockOf.emplace_back();
    }
    gaps[gap].push_back(&parameters[i]);
    place(parameters[i], gap);
  }
  nameGaps();
}

/// Names gaps after their only module, or after the path that contains all of them, with their position.
void Planner::nameGaps() {
  for (const auto &[unit, members] : gaps) {
    std::string name = commonPath(members);
    bool isOneModule = llvm::all_of(members, [&](const UsedParameter *parameter) { return parameter->module == name; });
    if (!isOneModule || name.empty()) {
      bool isFirst = unit == 0, isLast = unit + 1 == static_cast<int32_t>(plan.units.size());
      name += name.empty() ? "" : ".";
      name += isFirst ? "pre" : isLast ? "post" : "between";
    }
    plan.units[unit].name = freshName(name);
  }
}

// ---- By size

/// Consecutive modules become a unit when they reach `unitElements`. largeAlone: a module that reaches it alone stays
/// alone, unless its neighbour before or after is too small to count.
void Planner::bySize(int64_t unitElements, bool largeAlone) {
  llvm::MapVector<llvm::StringRef, OwnedParameters> modules;
  for (const UsedParameter &parameter : parameters) {
    OwnedParameters &owned = modules[parameter.module];
    owned.members.push_back(&parameter);
    owned.elements += parameter.elements;
  }
  struct Group {
    std::vector<const OwnedParameters *> modules;
    int64_t elements = 0;
  };
  std::vector<Group> groups;
  int64_t negligible = largeAlone ? unitElements / smallestPart : 0;
  for (const auto &[path, owned] : modules) {
    bool isFull = !groups.empty() && groups.back().elements >= unitElements;
    bool standsAlone =
        largeAlone && owned.elements >= unitElements && !groups.empty() && groups.back().elements >= negligible;
    if (groups.empty() || isFull || standsAlone)
      groups.emplace_back();
    groups.back().modules.push_back(&owned);
    groups.back().elements += owned.elements;
  }
  if (groups.size() > 1 && groups.back().elements < negligible) {
    llvm::append_range(groups[groups.size() - 2].modules, groups.back().modules);
    groups.pop_back();
  }
  for (const Group &group : groups) {
    std::string first = group.modules.front()->members.front()->module,
                last = group.modules.back()->members.front()->module;
    int32_t unit = addUnit(freshName(first == last ? first : first + "_to_" + last), "size");
    for (const OwnedParameters *owned : group.modules)
      for (const UsedParameter *parameter : owned->members)
        place(*parameter, unit);
  }
}

int64_t totalElements(llvm::ArrayRef<UsedParameter> parameters) {
  int64_t total = 0;
  for (const UsedParameter &parameter : parameters)
    total += parameter.elements;
  return total;
}

} // namespace

llvm::Expected<UnitPlan> planUnits(llvm::ArrayRef<UsedParameter> parameters,
                                   const std::map<std::string, std::string> &classes, const PipelineOptions &options) {
  Planner planner(parameters, options);
  const WrapPolicy policy = options.autoWrapPolicy;
  if (policy == WrapPolicy::none || parameters.empty()) {
    planner.asOne();
  } else if (policy == WrapPolicy::sizeBased) {
    planner.bySize(options.minNumParams, /*largeAlone=*/false);
  } else if (policy == WrapPolicy::transformerBased || policy == WrapPolicy::manual) {
    bool byClass = policy == WrapPolicy::transformerBased;
    llvm::Expected<std::vector<std::string>> blocks =
        byClass ? findModulesOfClasses(parameters, classes, options.transformerClsToWrap)
                : findModulesByPattern(parameters, options.wrapPattern);
    if (!blocks)
      return blocks.takeError();
    planner.byBlocks(*blocks, byClass ? "classes" : "pattern");
  } else {
    auto hasBlocks = [](llvm::ArrayRef<std::string> blocks) {
      return llvm::any_of(blocks, [](const std::string &block) { return !block.empty(); });
    };
    std::vector<std::string> blocks = findRepeatedBlocks(parameters);
    if (!hasBlocks(blocks))
      blocks = findReusedModules(parameters);
    if (hasBlocks(blocks))
      planner.byBlocks(blocks, "");
    else
      planner.bySize(totalElements(parameters) / unitsBySize, /*largeAlone=*/true);
  }
  return std::move(planner.plan);
}

} // namespace fsdpc
