// What the user says about single units and parameters, written over what the options say about all.
#include "passes/graph/unit_plan.h"
#include "passes/shard/placement.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Regex.h"

namespace fsdpc {

namespace {

/// The field of a unit that a key of --unit sets.
std::string &fieldOf(Unit &unit, llvm::StringRef key) {
  if (key == "strategy")
    return unit.strategy;
  if (key == "reshard_after_forward")
    return unit.reshardAfterForward;
  if (key == "forward_prefetch")
    return unit.forwardPrefetch;
  if (key == "activation_checkpointing")
    return unit.activationCheckpointing;
  if (key == "accumulation")
    return unit.accumulation;
  if (key == "offload")
    return unit.offload;
  if (key == "offload_activations")
    return unit.offloadActivations;
  if (key == "param_dtype")
    return unit.paramDType;
  if (key == "reduce_dtype")
    return unit.reduceDType;
  assert(key == "backward_prefetch" && "the driver lets no other key through");
  return unit.backwardPrefetch;
}

template <class Items>
std::string namesOf(const Items &items) {
  std::vector<std::string> names;
  for (const auto &item : items)
    names.push_back(item.name);
  return listed(names);
}

llvm::Error applyTo(std::vector<Unit> &units, const llvm::StringSet<> &continued, const UnitOverride &override) {
  llvm::Regex regex("^(" + override.pattern + ")$");
  bool isMatched = false;
  for (Unit &unit : units) {
    if (continued.contains(unit.name) || !regex.match(unit.name))
      continue;
    isMatched = true;
    for (const auto &[key, value] : override.values)
      fieldOf(unit, key) = value;
  }
  if (!isMatched)
    return llvm::createStringError("--unit " + override.pattern + ": the whole name of no unit matches; there are " +
                                   namesOf(units));
  return llvm::Error::success();
}

/// Can the key change anything for a unit of this strategy?
bool isUsed(const Unit &unit, llvm::StringRef key) {
  if (key == "accumulation")
    return unit.accumulation == Unit().accumulation || changesAnything(unit.accumulation, unit);
  Unit plain;
  plain.strategy = unit.strategy;
  WholeCopy copy = placementOf(plain).copy;
  return key == "strategy" || key == "activation_checkpointing" || key.starts_with("offload") ||
         key.ends_with("_dtype") || copy == WholeCopy::perUse ||
         (key == "forward_prefetch" && copy == WholeCopy::forwardToBackward);
}

/// Once all strategies are known: a choice that none of its units has a use for is a mistake.
llvm::Error checkEffects(llvm::ArrayRef<Unit> units, const UnitOverride &override) {
  llvm::Regex regex("^(" + override.pattern + ")$");
  for (const auto &[key, value] : override.values) {
    std::string without;
    bool isEffective = false;
    for (const Unit &unit : units)
      if (regex.match(unit.name)) {
        isEffective |= isUsed(unit, key);
        without = unit.name + " is " + unit.strategy;
      }
    if (!isEffective)
      return llvm::createStringError("--unit " + override.pattern + ": " + key + " changes nothing, " + without);
  }
  return llvm::Error::success();
}

llvm::Error ignoreParameters(Module &module, llvm::StringRef pattern) {
  if (pattern.empty())
    return llvm::Error::success();
  llvm::Regex regex(pattern);
  bool isMatched = false;
  for (Parameter &parameter : module.parameters) {
    parameter.ignored = regex.match(parameter.name);
    isMatched |= parameter.ignored;
  }
  return isMatched ? llvm::Error::success()
                   : llvm::createStringError("--ignored_params " + pattern + ": no parameter matches; there are " +
                                             namesOf(module.parameters));
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
      for (llvm::StringRef key :
           {"strategy", "reshard_after_forward", "forward_prefetch", "backward_prefetch", "activation_checkpointing",
            "accumulation", "offload", "offload_activations", "param_dtype", "reduce_dtype"})
        fieldOf(module.units[other], key) = fieldOf(module.units[unit], key);
  return ignoreParameters(module, options.ignoredParams);
}

} // namespace fsdpc
