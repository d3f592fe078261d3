// Options for single units and parameters, which override the options for all.
#include "ir/name_pattern.h"
#include "ir/usage_error.h"
#include "passes/graph/unit_plan.h"
#include "passes/shard/placement.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

template <class Items>
std::vector<std::string> namesOf(const Items &items) {
  std::vector<std::string> names;
  for (const auto &item : items)
    names.push_back(item.name);
  return names;
}

llvm::Error applyTo(std::vector<Unit> &units, const llvm::StringSet<> &continued, const UnitOverride &override) {
  llvm::Expected<NamePattern> pattern = NamePattern::make("unit", override.pattern);
  if (!pattern)
    return pattern.takeError();
  bool isMatched = false;
  for (Unit &unit : units) {
    if (continued.contains(unit.name) || !pattern->matches(unit.name))
      continue;
    isMatched = true;
    for (const UnitChoice *choice : override.made)
      choice->copy(override.choices, unit.choices);
  }
  return isMatched ? llvm::Error::success() : pattern->matchesNone("unit", namesOf(units));
}

/// True if the choice has an effect for a unit of this strategy.
bool isUsed(const Unit &unit, const UnitChoice &choice) {
  if (choice.name == "accumulation")
    return choice.isDefault(unit.choices) || changesAnything(unit.choices.accumulation, unit);
  Unit plain;
  plain.choices.strategy = unit.choices.strategy;
  UnshardedCopy copy = placementOf(plain).copy;
  bool isOfGathers = choice.name == "reshard_after_forward" || choice.name.ends_with("_prefetch");
  return !isOfGathers || copy == UnshardedCopy::perUse ||
         (choice.name == "forward_prefetch" && copy == UnshardedCopy::forwardToBackward);
}

/// Runs when all strategies are known. A choice that affects none of its units is an error.
llvm::Error checkEffects(llvm::ArrayRef<Unit> units, const UnitOverride &override) {
  llvm::Expected<NamePattern> pattern = NamePattern::make("unit", override.pattern);
  if (!pattern)
    return pattern.takeError();
  for (const UnitChoice *choice : override.made) {
    std::string without;
    bool isEffective = false;
    for (const Unit &unit : units)
      if (pattern->matches(unit.name)) {
        isEffective |= isUsed(unit, *choice);
        without = unit.name + " is " + spelled(unit.choices.strategy);
      }
    if (!isEffective)
      return llvm::make_error<UsageError>(
          ("--unit " + override.pattern + ": " + choice->name + " changes nothing, " + without).str());
  }
  return llvm::Error::success();
}

llvm::Error ignoreParameters(Module &module, llvm::StringRef text) {
  if (text.empty())
    return llvm::Error::success();
  llvm::Expected<NamePattern> pattern = NamePattern::make("ignored_params", text);
  if (!pattern)
    return pattern.takeError();
  bool isMatched = false;
  for (Parameter &parameter : module.parameters) {
    parameter.ignored = pattern->matches(parameter.name);
    isMatched |= parameter.ignored;
  }
  return isMatched ? llvm::Error::success() : pattern->matchesNone("parameter", namesOf(module.parameters));
}

} // namespace

llvm::Error applyUnitOverrides(Module &module, const UnitPlan &plan, const PipelineOptions &options) {
  llvm::StringSet<> continued;
  for (const auto &[unit, others] : plan.continuations)
    for (int32_t other : others)
      continued.insert(module.units[other].name);
  for (const UnitOverride &override : options.unitOverrides)
    if (llvm::Error error = applyTo(module.units, continued, override))
      return error;
  for (const UnitOverride &override : options.unitOverrides)
    if (llvm::Error error = checkEffects(module.units, override))
      return error;
  for (const auto &[unit, others] : plan.continuations)
    for (int32_t other : others)
      module.units[other].choices = module.units[unit].choices;
  return ignoreParameters(module, options.ignoredParams);
}

} // namespace fsdpc
