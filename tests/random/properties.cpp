#include "tests/random/properties.h"

#include "ir/clone.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/check/check_schedule.h"
#include "passes/runner.h"
#include "passes/support/clone.h"
#include "tests/compare/compare.h"
#include "tests/random/rebatched.h"
#include "tests/random/slopes.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

namespace fsdpc {

namespace {

// Stages, strategies and numbers of ranks differ at most in the order of sums: some roundings of 1e-16, amplified by
// cancellation. Values in graphs stay near 1 (generate.h).
constexpr double limit = 1e-9;

// The second step reads values that the first one wrote.
constexpr int steps = 2;

/// Terms are of the order of one. Where all sums of a kind cancel, rounding leaves 1e-18 of them, in any order another
/// value; an error of limit x smallestScale = 1e-17 is none.
constexpr double smallestScale = 1e-8;

/// Compares one kind of quantity.
void compare(const Tensors &actual, const Tensors &expected, llvm::StringRef kind, Deviation &found) {
  double largest = 0;
  for (const auto &[name, tensor] : expected)
    largest = std::max(largest, scaleOf(tensor.values));
  auto note = [&](double error, const std::string &name) {
    if (error > found.worst)
      found = {error, (kind + " " + name).str()};
  };
  if (actual.size() != expected.size())
    note(INFINITY, llvm::utostr(actual.size()) + " instead of " + llvm::utostr(expected.size()));
  for (const auto &[name, tensor] : expected) {
    auto other = actual.find(name);
    if (other == actual.end() || other->second.type.shape() != tensor.type.shape()) {
      note(INFINITY, name + " is missing or of another shape");
      continue;
    }
    double scale = std::max({scaleOf(tensor.values), 1e-4 * largest, smallestScale});
    for (size_t i = 0; i < tensor.values.size(); ++i)
      note(errorOf(other->second.values[i], tensor.values[i]) / scale, name + "[" + llvm::utostr(i) + "]");
  }
}

bool isFinite(const Tensors &tensors) {
  return llvm::all_of(tensors, [](const auto &entry) {
    return llvm::all_of(entry.second.values, [](double value) { return std::fabs(value) < 1e9; });
  });
}

/// One placement of the units.
struct Variant {
  std::string name;
  Strategy strategy = Strategy::fullShard;
  ReshardAfterForward reshardAfterForward = {};
  int64_t replicas = 1;
  int64_t gatherBucketBytes = 0, reduceBucketBytes = 0;
  bool ownReduceCommunicator = false;
  Accumulation accumulation = Accumulation::reduce;
  bool mixed = false; ///< every unit gets its own strategy
};

using Kept = ReshardAfterForward::Kind;

/// full_shard is first. All of its stages are compared, but only the plan of the others.
std::vector<Variant> variantsFor(int64_t ranks, int64_t microSteps) {
  std::vector<Variant> variants = {
      {"full_shard", Strategy::fullShard},
      {"full_shard, always resharded", Strategy::fullShard, {Kept::always}},
      {"full_shard, never resharded", Strategy::fullShard, {Kept::never}},
      {.name = "full_shard, own reduce communicator", .strategy = Strategy::fullShard, .ownReduceCommunicator = true},
      {.name = "full_shard, small buckets",
       .strategy = Strategy::fullShard,
       .gatherBucketBytes = 512,
       .reduceBucketBytes = 512},
      {"shard_grad_op", Strategy::shardGradOp},
      {"shard_optimizer", Strategy::shardOptimizer},
      {"no_shard", Strategy::noShard},
      {.name = "no_shard, buckets", .strategy = Strategy::noShard, .reduceBucketBytes = 2048},
      {.name = "mixed", .strategy = Strategy::fullShard, .mixed = true},
  };
  if (microSteps > 1)
    for (Accumulation kept : {Accumulation::keepGradients, Accumulation::keepParameters, Accumulation::keepBoth})
      variants.push_back({.name = "full_shard, " + spelled(kept), .accumulation = kept});
  if (ranks == 4)
    variants.insert(variants.end(),
                    {{"full_shard, resharded to 2", Strategy::fullShard, {Kept::toGroups, 2}},
                     {.name = "hybrid_shard", .strategy = Strategy::hybridShard, .replicas = 2},
                     {.name = "hybrid_shard, own reduce communicator",
                      .strategy = Strategy::hybridShard,
                      .replicas = 2,
                      .ownReduceCommunicator = true},
                     {.name = "hybrid_shard_zero2", .strategy = Strategy::hybridShardZero2, .replicas = 2},
                     {.name = "mixed with hybrid", .strategy = Strategy::hybridShard, .replicas = 2, .mixed = true}});
  return variants;
}

PipelineOptions optionsFor(const PipelineOptions &base, const Variant &variant) {
  PipelineOptions options = base;
  options.choices.strategy = variant.strategy;
  options.choices.reshardAfterForward = variant.reshardAfterForward;
  options.replicateDegree = variant.replicas;
  options.allGatherBucketBytes = variant.gatherBucketBytes;
  options.reduceBucketBytes = variant.reduceBucketBytes;
  options.decisions.ownReduceCommunicator = variant.ownReduceCommunicator;
  options.choices.accumulation = variant.accumulation;
  return options;
}

/// Sets strategies unit by unit, as --unit does.
void mixUnits(Module &module, const Variant &variant, Random random) {
  std::vector<Strategy> strategies = {Strategy::fullShard, Strategy::shardGradOp, Strategy::shardOptimizer,
                                      Strategy::noShard};
  if (variant.replicas > 1)
    strategies.insert(strategies.end(), {Strategy::hybridShard, Strategy::hybridShardZero2});
  using Prefetch = BackwardPrefetch;
  using Recompute = ActivationCheckpointing;
  for (Unit &unit : module.units) {
    UnitChoices &choices = unit.choices;
    choices.strategy = random.pick(strategies);
    choices.reshardAfterForward.kind = random.pick({Kept::byPosition, Kept::byPosition, Kept::always, Kept::never});
    choices.forwardPrefetch = random.pick<std::optional<bool>>({std::nullopt, std::nullopt, true, false});
    choices.backwardPrefetch = random.pick<std::optional<Prefetch>>(
        {std::nullopt, std::nullopt, Prefetch::pre, Prefetch::post, Prefetch::none});
    choices.activationCheckpointing =
        random.pick({Recompute::none, Recompute::none, Recompute::full, Recompute::selective, Recompute::budget});
    choices.accumulation = random.pick({Accumulation::reduce, Accumulation::reduce, Accumulation::keepGradients,
                                        Accumulation::keepParameters, Accumulation::keepBoth});
    choices.offload = random.pick({Offload::none, Offload::none, Offload::optimizer, Offload::params});
    choices.offloadActivations = random.pick<std::optional<bool>>({std::nullopt, std::nullopt, true, false});
    choices.rows = random.pick({RowLookup::on, RowLookup::on, RowLookup::off});
  }
  // The mesh has replicas only if a unit is sharded within them.
  if (variant.replicas > 1 && !module.units.empty())
    module.units.front().choices.strategy = Strategy::hybridShard;
}

class PropertyCheck {
public:
  PropertyCheck(const Module &graph, const Choices &choices, uint64_t seed, const Target &target, Tally &tally,
                size_t placements)
      : graph(graph), choices(choices), seed(seed), target(target), tally(tally), placements(placements) {}

  std::optional<Violation> run() {
    if (std::optional<Violation> found = establishReference())
      return found;
    if (isRefused()) {
      ++tally.reference.notRebatched;
      return std::nullopt;
    }
    if (std::optional<Violation> found =
            violationAgainstReference(graph, *compiled.stages.at(Stage::train), choices, seed, tally.reference))
      return found;
    if (std::optional<Violation> found = checkOneRank())
      return found;
    for (const Variant &variant : drawnVariants())
      if (std::optional<Violation> found = checkVariant(variant))
        return found;
    return checkLowPrecision();
  }

private:
  std::optional<Violation> establishReference();
  bool isRefused() const;
  std::optional<Violation> checkOneRank();
  std::optional<Violation> checkVariant(const Variant &variant);
  std::optional<Violation> checkLowPrecision();
  std::vector<Variant> drawnVariants() const;
  std::optional<Violation> checkPlan(const Module &train, const Module &planned);
  std::optional<Violation> compareWith(const Module &module, const std::string &property, const std::string &what);

  static void recordOps(const Module &module, llvm::StringSet<> &ops) {
    for (const std::unique_ptr<Function> &function : module.functions)
      for (const Node *node : *function)
        ops.insert(infoOf(*node).name);
  }

  const Module &graph;
  const Choices &choices;
  const uint64_t seed;
  const Target &target;
  Tally &tally;
  const size_t placements;
  Compiled compiled; ///< of the first variant
  Tensors batch;
  Outcome reference; ///< the train stage on all ranks
};

/// The property and the first letters of the message, so that different errors are different violations.
Violation violation(const std::string &property, llvm::Error error) {
  constexpr size_t maxLetters = 40;
  std::string message = toString(std::move(error)), name = property + "_";
  for (char c : message)
    if (name.size() < maxLetters && llvm::isAlpha(c))
      name += c;
  return {name, message};
}

std::vector<Variant> PropertyCheck::drawnVariants() const {
  std::vector<Variant> variants = variantsFor(choices.ranks, choices.options.microSteps);
  Random random(seed, "placements");
  while (variants.size() > 1 && variants.size() - 1 > placements)
    variants.erase(variants.begin() + random.between(1, static_cast<int64_t>(variants.size()) - 1));
  return variants;
}

std::optional<Violation> unreadableStage(const Compiled &compiled) {
  if (compiled.unreadable.empty())
    return std::nullopt;
  return Violation{"text", compiled.unreadable + " reads back, or is cloned, as another module"};
}

std::optional<Violation> PropertyCheck::establishReference() {
  recordOps(graph, tally.drawn);
  recordOps(graph, tally.reached);
  if (llvm::Error error = verify(graph))
    return violation("graph", std::move(error));
  llvm::Expected<Compiled> result = compileStages(graph, choices.options, target, Stage::planned);
  if (!result)
    return violation("passes", result.takeError());
  compiled = std::move(*result);
  if (std::optional<Violation> found = unreadableStage(compiled))
    return found;
  const Module &train = *compiled.stages.at(Stage::train);
  batch =
      globalBatch(train, choices, seed, choices.ranks * choices.options.microSteps * choices.options.microBatchSize);
  llvm::Expected<Outcome> outcome = fsdpc::train(train, batch, seed, steps);
  if (!outcome)
    return violation("evaluation", outcome.takeError());
  reference = std::move(*outcome);
  if (!std::isfinite(reference.loss) || !isFinite(reference.gradients) || !isFinite(reference.parameters))
    return Violation{"finite", "loss, gradients or parameters are not tame"};
  return std::nullopt;
}

/// With separate samples, a result that the compiler finds to be the same for all of them is refused
/// (passes/analysis/samples_apart.h), although the graph as generated computes it from the input: select(x > 0, 1, 1).
bool PropertyCheck::isRefused() const {
  const Value *side = resultValue(*compiled.stages.at(Stage::train)->function(FunctionKind::evalStep), "output.side");
  return choices.options.splitSamples && side && !readsInput(side);
}

std::optional<Violation> PropertyCheck::compareWith(const Module &module, const std::string &property,
                                                    const std::string &what) {
  llvm::Expected<Outcome> outcome = train(module, batch, seed, steps);
  if (!outcome)
    return violation("evaluation", llvm::createStringError(what + ": " + toString(outcome.takeError())));
  if (property == "one_rank") // a rank outputs only its own samples
    outcome->evaluation = reference.evaluation;
  Deviation found = deviation(*outcome, reference);
  if (found.worst <= limit)
    return std::nullopt;
  std::string text;
  llvm::raw_string_ostream(text) << what << ": " << found.where << " is off by " << found.worst;
  return Violation{property, text};
}

/// Whether a norm uses statistics of one rank's part of the batch.
bool normalisesOwnBatch(const Node &node) {
  return node.op() == Op::batchNorm && node.get<BatchNormAttributes>().training &&
         !node.get<BatchNormAttributes>().synced;
}

/// The full batch on one rank must give the same results as all ranks together.
std::optional<Violation> PropertyCheck::checkOneRank() {
  for (const Node *node : *graph.function(FunctionKind::forward))
    if (normalisesOwnBatch(*node))
      return std::nullopt;
  // Masks that depend on the number of ranks are announced.
  if (llvm::any_of(compiled.remarks, [](const std::string &remark) {
        return llvm::StringRef(remark).contains("depend on the number of ranks");
      }))
    return std::nullopt;
  // With separate samples, the graph is for one sample and serves any batch.
  std::unique_ptr<Module> whole = choices.options.splitSamples ? copyOf(graph) : rebatched(graph, choices.ranks);
  if (!whole)
    return std::nullopt;
  PipelineOptions options = choices.options;
  options.worldSize = 1;
  options.microBatchSize *= choices.ranks;
  llvm::Expected<Compiled> one = compileStages(*whole, options, target, Stage::planned);
  if (!one)
    return violation("passes", llvm::createStringError("on one rank: " + toString(one.takeError())));
  for (Stage stage : {Stage::train, Stage::planned})
    if (auto found = compareWith(*one->stages.at(stage), "one_rank", "one rank, stage " + nameOf(stage).str()))
      return found;
  return std::nullopt;
}

std::optional<Violation> PropertyCheck::checkPlan(const Module &train, const Module &planned) {
  if (llvm::Error error = checkPlanned(planned))
    return violation("checker", std::move(error));
  if (llvm::Error error = checkAgainstTrain(train, planned))
    return violation("checker", std::move(error));
  return std::nullopt;
}

/// Every stage of the strategy computes the same as the train stage, and the schedule checker accepts the plan.
std::optional<Violation> PropertyCheck::checkVariant(const Variant &variant) {
  auto mix = [&](Module &module) {
    if (variant.mixed)
      mixUnits(module, variant, Random(seed, variant.name));
  };
  llvm::Expected<Compiled> result =
      compileStages(graph, optionsFor(choices.options, variant), target, Stage::planned, mix);
  if (!result)
    return violation("passes", llvm::createStringError(variant.name + ": " + toString(result.takeError())));
  if (std::optional<Violation> found = unreadableStage(*result))
    return found;
  bool isFirst = variant.name == "full_shard";
  for (const auto &[stage, module] : result->stages) {
    recordOps(*module, tally.reached);
    // Intermediate stages differ least between strategies.
    if (stage != Stage::train && (isFirst || stage == Stage::planned))
      if (auto found =
              compareWith(*module, isFirst ? "stage" : "strategy", variant.name + ", stage " + nameOf(stage).str()))
        return found;
  }
  auto found = checkPlan(*result->stages.at(Stage::train), *result->stages.at(Stage::planned));
  if (found)
    found->details = variant.name + ": " + found->details;
  return found;
}

/// The checker accepts plans in 16 bits. Casts and the dtype of communication are part of the checked semantics.
std::optional<Violation> PropertyCheck::checkLowPrecision() {
  Random random(seed, "low precision");
  const Variant variant = random.pick(variantsFor(choices.ranks, choices.options.microSteps));
  PipelineOptions options = optionsFor(choices.options, variant);
  options.paramDType = DType::bf16;
  options.reduceDType = choices.ranks > 1 ? random.pick({DType::f32, DType::bf16}) : DType::f32;
  options.keepLowPrecisionGrads = options.reduceDType == DType::bf16 && options.microSteps == 1 && random.chance(0.5);
  llvm::Expected<Compiled> result = compileStages(graph, options, target, Stage::planned);
  if (!result)
    return violation("passes", llvm::createStringError(variant.name + " in bf16: " + toString(result.takeError())));
  if (std::optional<Violation> found = unreadableStage(*result))
    return found;
  return checkPlan(*result->stages.at(Stage::train), *result->stages.at(Stage::planned));
}

} // namespace

std::unique_ptr<Module> copyOf(const Module &module) {
  std::string text = toText(module);
  llvm::Expected<std::unique_ptr<Module>> copy = parse(llvm::MemoryBufferRef(text, "copy"));
  return copy ? std::move(*copy) : (llvm::consumeError(copy.takeError()), nullptr);
}

llvm::Expected<Compiled> compileStages(const Module &graph, const PipelineOptions &options, const Target &target,
                                       Stage last, llvm::function_ref<void(Module &)> atGraph) {
  Compiled compiled;
  std::unique_ptr<Module> module = copyOf(graph);
  if (!module)
    return llvm::createStringError("the graph does not read back");
  PassContext context{options, target, compiled.remarks};
  RunnerOptions runner;
  std::vector<PassTime> times;
  runner.stopAfter = Stage::graph;
  if (llvm::Error error = runPasses(*module, context, runner, times))
    return error;
  if (atGraph)
    atGraph(*module);
  runner.stopAfter = last;
  auto observer = [&](Stage stage, const Module &at) {
    if (stage == Stage::graph || !compiled.unreadable.empty())
      return;
    const std::string text = toText(at);
    llvm::Expected<std::unique_ptr<Module>> again = parse(llvm::MemoryBufferRef(text, "stage"));
    if (again && toText(**again) == text && toText(*clone(at)) == text)
      compiled.stages[stage] = std::move(*again);
    else
      compiled.unreadable = nameOf(stage).str();
    if (!again)
      llvm::consumeError(again.takeError());
  };
  if (llvm::Error error = runPasses(*module, context, runner, times, observer))
    return error;
  return compiled;
}

llvm::Expected<Outcome> train(const Module &module, const Tensors &batch, uint64_t seed, int steps) {
  Outcome outcome;
  std::vector<Tensors> inputs = rowsOfRanks(batch, module.worldSize() * module.microSteps);
  EvaluationState state = makeEvaluationState(module, parameterValues(module, seed));
  constexpr FunctionKind step[] = {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::tapGradients,
                                   FunctionKind::update};
  for (int i = 0; i < steps; ++i) {
    Tensors gradients;
    llvm::Expected<RankResults> results = module.stage == Stage::train
                                              ? evaluate(module, step, inputs, state, &gradients)
                                              : evaluateStep(module, inputs, state, &gradients);
    if (!results)
      return results.takeError();
    outcome.loss = results->front().at("loss").values[0];
    if (i == 0)
      outcome.gradients = std::move(gradients);
  }
  outcome.parameters = fullParameters(module, state);
  // In the train stage each micro-step has its own ranks. Evaluation uses those of one micro-step.
  inputs.resize(module.worldSize());
  state.states.resize(module.worldSize());
  llvm::Expected<RankResults> results = evaluate(module, FunctionKind::evalStep, inputs, state);
  if (!results)
    return results.takeError();
  outcome.evaluation = std::move(results->back());
  return outcome;
}

Deviation deviation(const Outcome &actual, const Outcome &expected) {
  Deviation found;
  auto asTensors = [](double loss) { return Tensors{{"loss", HostTensor(Type(DType::f64, {}), loss)}}; };
  compare(asTensors(actual.loss), asTensors(expected.loss), "", found);
  compare(actual.gradients, expected.gradients, "gradient", found);
  compare(actual.parameters, expected.parameters, "parameter", found);
  compare(actual.evaluation, expected.evaluation, "evaluation", found);
  return found;
}

std::optional<Violation> violationOf(const Module &graph, const Choices &choices, uint64_t seed, const Target &target,
                                     Tally &tally, size_t placements) {
  return PropertyCheck(graph, choices, seed, target, tally, placements).run();
}

} // namespace fsdpc
