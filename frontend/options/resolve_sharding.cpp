// Which rank holds what, and options without effect on it.
#include "frontend/options/resolve.h"
#include "passes/shard/placement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

/// Returns whether a choice has an effect on units with this placement.
bool mattersTo(Matters matters, const Placement &row) {
  switch (matters) {
  case Matters::always: return true;
  case Matters::gatheredPerUse: return row.copy == UnshardedCopy::perUse;
  case Matters::gatheredInStep: return row.copy != UnshardedCopy::always;
  case Matters::split: return row.split != Split::none;
  case Matters::unsharded: return row.split == Split::none;
  case Matters::splitInReplica: return row.split == Split::shard;
  }
  llvm_unreachable("all are above");
}

bool isHybrid(const Placement &row) { return mattersTo(Matters::splitInReplica, row); }

Unit unitOf(Strategy strategy) { return {.choices = {.strategy = strategy}}; }

/// Reads the choices for all units. The default of an optional is elsewhere (Decisions, PipelineOptions), and a flag
/// consists of several options.
llvm::Error readChoices(const OptionValues &values, UnitChoices &choices) {
  for (const UnitChoice &choice : unitChoices())
    if (choice.optionDefault.empty() && !choice.read(values.text(choice.option).lower(), choices))
      return usage("--" + choice.option + " " + values.text(choice.option) + ": " + choice.values() + " is expected");
  return llvm::Error::success();
}

bool accumulationIsUsed(const UnitChoices &choices, int64_t microSteps) {
  return microSteps > 1 && changesAnything(choices.accumulation, Unit{.choices = choices});
}

llvm::Error requireDegree(const OptionValues &values, const llvm::Twine &who) {
  for (llvm::StringRef name : {"data_parallel_shard_degree", "data_parallel_replicate_degree"})
    if (values.given(name) || values.text(name) != defaultOf(name))
      return llvm::Error::success();
  return usage(who + ": --data_parallel_shard_degree (ranks of one replica) or --data_parallel_replicate_degree is "
                     "required");
}

/// Units with their own strategy may use options that have no effect on the others.
llvm::Error rejectWithoutEffect(const OptionValues &values, const PipelineOptions &options, bool unitsDiffer) {
  const Unit unit = unitOf(options.choices.strategy);
  const std::string strategy = "--strategy " + spelled(options.choices.strategy);
  for (const OptionRow &option : optionTable())
    if (!unitsDiffer && !mattersTo(option.matters, placementOf(unit)) && changed(values, option.name))
      return usage("--" + option.name + ": changes nothing for " + strategy);
  if (!unitsDiffer && changed(values, "accumulation") && !accumulationIsUsed(options.choices, options.microSteps))
    return usage("--accumulation " + spelled(options.choices.accumulation) + ": changes nothing for " + strategy);
  return isHybrid(placementOf(unit)) ? requireDegree(values, strategy) : llvm::Error::success();
}

/// Degrees of the hybrid mesh; their product is checked where the mesh is made.
llvm::Error hybridOptions(const OptionValues &values, PipelineOptions &options) {
  options.shardDegree = values.integer("data_parallel_shard_degree");
  options.replicateDegree = values.integer("data_parallel_replicate_degree");
  for (llvm::StringRef name : {"data_parallel_shard_degree", "data_parallel_replicate_degree"})
    if (changed(values, name) && (values.integer(name) < 1 || options.worldSize % values.integer(name) != 0))
      return usage("--" + name + " " + values.text(name) + ": does not divide the world size " +
                   llvm::Twine(options.worldSize));
  return llvm::Error::success();
}

/// Sums within replicas of S ranks, followed by sums over the replicas, are one balanced tree over all ranks if S is a
/// power of two or there is one replica. Gathers in smaller groups (reshard_after_forward) sum nothing.
llvm::Error deterministicOptions(const OptionValues &values, PipelineOptions &options) {
  llvm::StringRef mode = values.text("deterministic");
  if (mode == "off")
    return llvm::Error::success();
  options.sumsRanksFirst = true;
  auto keeps = [](const UnitChoices &choices) { return keepsGradients(Unit{.choices = choices}); };
  if (keeps(options.choices) || isGivenForUnits(options, keeps))
    return usage(
        "--deterministic " + mode +
        ": kept gradients are summed over micro-steps before ranks, the others "
        "ranks before micro-steps, so bits depend on the choice; give --accumulation reduce or keep_parameters");
  int64_t replicas = options.replicateDegree;
  if (options.shardDegree > 0)
    replicas = options.worldSize / options.shardDegree;
  uint64_t members = static_cast<uint64_t>(options.worldSize / std::max<int64_t>(replicas, 1));
  if (replicas > 1 && !llvm::isPowerOf2_64(members))
    return usage("--deterministic " + mode + ": replicas of " + llvm::Twine(members) +
                 " ranks sum in another order than other strategies; the ranks of a replica must be a power of two");
  options.splitSamples = mode == "world";
  const bool roundsSums = options.reduceDType != DType::f32 ||
                          isGivenForUnits(options, [](const UnitChoices &unit) { return isLow(unit.reduceDType); });
  if (roundsSums && (options.splitSamples || (replicas > 1 && members > 1)))
    return usage(
        "--deterministic " + mode + ": each sum over ranks is rounded to the reduce_dtype, so bits depend on " +
        (options.splitSamples ? "the number of ranks" : "there being a sum within replicas and one over them") +
        "; give --reduce_dtype fp32");
  if (options.splitSamples && !llvm::isPowerOf2_64(static_cast<uint64_t>(options.microBatchSize)))
    return usage("--deterministic world: --micro_batch_size " + llvm::Twine(options.microBatchSize) +
                 " is no power of two, so sums over its samples depend on the number of ranks");
  return llvm::Error::success();
}

/// A unit's own strategy may use options that --strategy does not use, and needs the degrees if it is hybrid.
llvm::Error checkUnitStrategies(const OptionValues &values, const PipelineOptions &options, bool &unitsDiffer) {
  for (const UnitOverride &unit : options.unitOverrides) {
    if (!llvm::is_contained(unit.made, unitChoice("strategy")))
      continue;
    unitsDiffer = true;
    const Strategy strategy = unit.choices.strategy;
    if (isHybrid(placementOf(unitOf(strategy))))
      if (llvm::Error error = requireDegree(values, "--unit " + unit.pattern + ":strategy=" + spelled(strategy)))
        return error;
  }
  return llvm::Error::success();
}

/// The default budget: half of the activations that could be kept. Cheap nodes alone are about that much.
constexpr double defaultShareKept = 0.5;

/// A given budget requires a unit that uses it.
llvm::Error checkpointingOptions(const OptionValues &values, PipelineOptions &options) {
  auto hasBudget = [](const UnitChoices &choices) {
    return choices.activationCheckpointing == ActivationCheckpointing::budget;
  };
  const bool isUsed = hasBudget(options.choices) || isGivenForUnits(options, hasBudget);
  llvm::StringRef share = values.text("activation_memory_budget");
  if (!isUsed)
    return share.empty()
               ? llvm::Error::success()
               : usage("--activation_memory_budget: changes nothing without --activation_checkpointing budget");
  options.activationMemoryBudget = share.empty() ? defaultShareKept : values.real("activation_memory_budget");
  if (!(options.activationMemoryBudget >= 0 && options.activationMemoryBudget <= 1))
    return usage("--activation_memory_budget " + share + ": a share from 0 to 1 is expected");
  return llvm::Error::success();
}

/// With --memory_budget the driver determines the share.
llvm::Error offloadShare(const OptionValues &values, PipelineOptions &options) {
  llvm::StringRef share = values.text("offload_share");
  if (share.empty())
    return llvm::Error::success();
  if (options.choices.offload == Offload::none && !options.offloadsActivations)
    return usage("--offload_share " + share +
                 ": changes nothing without --offload_params, --offload_optimizer or "
                 "--offload_activations");
  if (options.choices.offload == Offload::none && values.text("activation_checkpointing") == "budget")
    return usage("--offload_share " + share +
                 ": changes nothing for --activation_checkpointing budget, which says itself what is offloaded");
  options.offloadShare = values.real("offload_share");
  return options.offloadShare >= 0 && options.offloadShare <= 1
             ? llvm::Error::success()
             : usage("--offload_share " + share + ": a share from 0 to 1 is expected");
}

} // namespace

llvm::StringRef defaultOf(llvm::StringRef name) {
  return llvm::find_if(optionTable(), [&](const OptionRow &option) { return option.name == name; })->defaultValue;
}

void dropWithoutEffect(OptionValues &values) {
  UnitChoices choices;
  llvm::consumeError(readChoices(values, choices)); // errors are reported when the plan is made
  const Placement placement = placementOf(unitOf(choices.strategy));
  for (const OptionRow &option : optionTable())
    if (!mattersTo(option.matters, placement))
      values.resolve(option.name, option.defaultValue.str());
  if (!accumulationIsUsed(choices, values.integer("gradient_accumulation_steps")))
    values.resolve("accumulation", defaultOf("accumulation").str());
  if (values.integer("world_size") == 1)
    for (llvm::StringRef name : {"reduce_dtype", "keep_low_precision_grads"})
      values.resolve(name, defaultOf(name).str());
}

llvm::Expected<int64_t> bytesOf(const OptionValues &values, llvm::StringRef name) {
  static constexpr std::pair<llvm::StringRef, double> suffixes[] = {{"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30},
                                                                    {"tib", 0x1p40}, {"kb", 1e3},     {"mb", 1e6},
                                                                    {"gb", 1e9},     {"tb", 1e12},    {"b", 1}};
  std::string lower = values.text(name).lower();
  llvm::StringRef digits = lower;
  double scale = 1, number;
  const auto *suffix = llvm::find_if(suffixes, [&](const auto &row) { return digits.consume_back(row.first); });
  if (suffix != std::end(suffixes))
    scale = suffix->second;
  if (digits.trim().getAsDouble(number) || !(number >= 0) || number * scale > 0x1p60)
    return usage("--" + name + " " + values.text(name) + ": bytes are expected, e.g. 25000000 or 16MiB");
  return static_cast<int64_t>(number * scale);
}

llvm::Error shardingOptions(const OptionValues &values, PipelineOptions &options) {
  if (llvm::Error error = readChoices(values, options.choices))
    return error;
  if (llvm::Error error = hybridOptions(values, options))
    return error;
  if (llvm::Error error = bytesOf(values, "allgather_bucket_size").moveInto(options.allGatherBucketBytes))
    return error;
  if (llvm::Error error = bytesOf(values, "reduce_bucket_size").moveInto(options.reduceBucketBytes))
    return error;
  options.decisions.forwardPrefetch = values.flag("forward_prefetch");
  options.decisions.backwardPrefetch = choiceOf<BackwardPrefetch>(values, "backward_prefetch");
  options.decisions.maxInflightAllGathers = values.integer("max_inflight_all_gathers");
  options.decisions.overlapComm = values.flag("overlap_comm");
  options.choices.offload = values.flag("offload_params")      ? Offload::params
                            : values.flag("offload_optimizer") ? Offload::optimizer
                                                               : Offload::none;
  options.offloadsActivations = values.flag("offload_activations");
  if (llvm::Error error = offloadShare(values, options))
    return error;
  if (llvm::Error error = checkpointingOptions(values, options))
    return error;
  bool unitsAccumulate = llvm::any_of(options.unitOverrides, [](const UnitOverride &unit) {
    return llvm::is_contained(unit.made, unitChoice("accumulation"));
  });
  if (options.microSteps == 1 && (changed(values, "accumulation") || unitsAccumulate))
    return usage("accumulation: changes nothing for --gradient_accumulation_steps 1");
  options.decisions.ownReduceCommunicator = values.text("reduce_communicator") == "own";
  if (llvm::Error error = deterministicOptions(values, options))
    return error;
  bool unitsDiffer = false;
  if (llvm::Error error = checkUnitStrategies(values, options, unitsDiffer))
    return error;
  return rejectWithoutEffect(values, options, unitsDiffer);
}

} // namespace fsdpc
