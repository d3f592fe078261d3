#include "frontend/options/resolve.h"

#include "frontend/options/cache_folder.h"
#include "ir/name_pattern.h"
#include "ir/op.h"
#include "passes/support/precision.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

/// Defaults per optimizer: torch.optim's, and for lion its authors'. An option that is not in the row has no effect on
/// that optimizer.
struct OptimizerDefaults {
  OptimizerKind kind;
  llvm::SmallVector<std::pair<llvm::StringRef, llvm::StringRef>, 6> scalars;
};

llvm::ArrayRef<OptimizerDefaults> optimizerDefaults() {
  static const OptimizerDefaults rows[] = {
      {OptimizerKind::adamw, {{"lr", "0.001"}, {"betas", "0.9,0.999"}, {"eps", "1e-08"}, {"weight_decay", "0.01"}}},
      {OptimizerKind::adam, {{"lr", "0.001"}, {"betas", "0.9,0.999"}, {"eps", "1e-08"}, {"weight_decay", "0"}}},
      {OptimizerKind::sgd,
       {{"lr", "0.001"}, {"momentum", "0"}, {"dampening", "0"}, {"weight_decay", "0"}, {"nesterov", "false"}}},
      {OptimizerKind::adadelta, {{"lr", "1"}, {"rho", "0.9"}, {"eps", "1e-06"}, {"weight_decay", "0"}}},
      {OptimizerKind::adagrad,
       {{"lr", "0.01"},
        {"lr_decay", "0"},
        {"eps", "1e-10"},
        {"weight_decay", "0"},
        {"initial_accumulator_value", "0"}}},
      {OptimizerKind::rmsprop,
       {{"lr", "0.01"},
        {"alpha", "0.99"},
        {"eps", "1e-08"},
        {"weight_decay", "0"},
        {"momentum", "0"},
        {"centered", "false"}}},
      {OptimizerKind::lion, {{"lr", "0.0001"}, {"betas", "0.9,0.99"}, {"weight_decay", "0"}}},
  };
  return rows;
}

const OptimizerDefaults &defaultsOf(OptimizerKind kind) {
  return *llvm::find_if(optimizerDefaults(), [&](const OptimizerDefaults &row) { return row.kind == kind; });
}

bool sameValue(llvm::StringRef a, llvm::StringRef b) {
  double x, y;
  return a == b || (!a.getAsDouble(x) && !b.getAsDouble(y) && x == y);
}

/// An optimizer option that the chosen optimizer does not have is an error, unless it has its default.
llvm::Error rejectForeignScalars(const OptionValues &values, const OptimizerDefaults &defaults) {
  for (const OptimizerDefaults &row : optimizerDefaults())
    for (const auto &[name, ignored] : row.scalars) {
      bool own = llvm::any_of(defaults.scalars, [&, key = name](const auto &entry) { return entry.first == key; });
      llvm::StringRef neutral;
      for (const OptionRow &option : optionTable())
        if (option.name == name)
          neutral = option.defaultValue.empty() ? "0" : option.defaultValue;
      if (!own && values.given(name) && !sameValue(values.text(name), neutral))
        return usage("--" + name + ": changes nothing for --optimizer " + spelled(defaults.kind));
    }
  return llvm::Error::success();
}

llvm::Expected<OptimizerOptions> optimizerOptions(OptionValues &values) {
  OptimizerOptions optimizer;
  optimizer.kind = *choiceFrom<OptimizerKind>(values.text("optimizer"));
  const OptimizerDefaults &defaults = defaultsOf(optimizer.kind);
  if (llvm::Error error = rejectForeignScalars(values, defaults))
    return error;
  for (const auto &[name, value] : defaults.scalars)
    if (!values.given(name))
      values.resolve(name, value.str());
  for (const auto &[name, value] : defaults.scalars) {
    if (name != "betas" && name != "nesterov" && name != "centered")
      if (llvm::Error error = checkRange(name, values.real(name), name, values.text(name)))
        return error;
    if (name == "betas") {
      // Python's notation of a tuple is accepted, too.
      auto [first, second] = values.text("betas").trim("() ").split(',');
      first = first.trim();
      second = second.trim();
      if (first.getAsDouble(optimizer.scalars["beta1"]) || second.getAsDouble(optimizer.scalars["beta2"]))
        return usage("--betas " + values.text("betas") + ": two numbers are expected, e.g. 0.9,0.999");
      for (const char *beta : {"beta1", "beta2"})
        if (llvm::Error error = checkRange(beta, optimizer.scalars[beta], name, values.text("betas")))
          return error;
    } else if (name != "nesterov" && name != "centered" && name != "initial_accumulator_value") {
      optimizer.scalars[name.str()] = values.real(name);
    }
  }
  optimizer.nesterov = values.flag("nesterov");
  optimizer.centered = values.flag("centered");
  optimizer.initialAccumulatorValue = values.real("initial_accumulator_value");
  if (!values.text("max_norm").empty()) {
    optimizer.maxNorm = values.real("max_norm");
    if (!(*optimizer.maxNorm > 0 && std::isfinite(*optimizer.maxNorm)))
      return usage("--max_norm " + values.text("max_norm") + ": a number above 0 is expected");
  }
  if (values.given("ema_decay")) {
    optimizer.averagesWeights = true;
    optimizer.scalars["ema_decay"] = values.real("ema_decay");
    if (llvm::Error error =
            checkRange("ema_decay", optimizer.scalars["ema_decay"], "ema_decay", values.text("ema_decay")))
      return error;
  }
  optimizer.evaluatesAverages = values.flag("eval_ema");
  if (optimizer.evaluatesAverages && !optimizer.averagesWeights)
    return usage("--eval_ema: there are no averages without --ema_decay");
  optimizer.skipsNonFinite = choiceFrom<NonFinite>(values.text("nonfinite")) != NonFinite::error;
  if (optimizer.nesterov && (optimizer.scalars["momentum"] <= 0 || optimizer.scalars["dampening"] != 0))
    return usage("--nesterov: needs --momentum above 0 and --dampening 0");
  if (llvm::Error error = groupOptions(values, optimizer))
    return error;
  return optimizer;
}

llvm::Error atLeastOne(const OptionValues &values, llvm::StringRef name, int64_t most) {
  int64_t value = values.integer(name);
  return value >= 1 && value <= most
             ? llvm::Error::success()
             : usage("--" + name + " " + llvm::Twine(value) + ": from 1 to " + llvm::Twine(most));
}

llvm::Expected<LossOptions> lossOptions(OptionValues &values, const Module &module) {
  LossOptions loss;
  if (values.text("loss").empty() && module.stage == Stage::graph) {
    if (!module.facts.modelLoss)
      return usage("--loss is required: the graph does not compute one (cross_entropy, nll, mse, l1, bce_with_logits)");
    values.resolve("loss", "model");
  }
  if (!values.text("loss").empty())
    loss.kind = choiceOf<LossKind>(values, "loss");
  loss.output = values.text("loss_output").str();
  loss.reduction = choiceOf<LossReduction>(values, "loss_reduction");
  if (!values.text("class_axis").empty())
    loss.classAxis = values.integer("class_axis");
  loss.ignoreIndex = values.integer("ignore_index");
  loss.labelSmoothing = values.real("label_smoothing");
  loss.topK = values.integer("top_k");
  loss.labels = values.text("labels").str();
  const std::optional<std::optional<int64_t>> chunk = lossChunkOf(values.text("loss_chunk"));
  if (!chunk)
    return usage("--loss_chunk " + values.text("loss_chunk") +
                 ": auto, off or a number of positions from 1 is expected");
  loss.chunk = *chunk;
  if (llvm::Error error = atLeastOne(values, "top_k", std::numeric_limits<int32_t>::max()))
    return error;
  if (loss.topK > 1 && loss.kind != LossKind::crossEntropy && loss.kind != LossKind::nll)
    return usage("--top_k: changes nothing for --loss " + spelled(loss.kind));
  if (loss.labelSmoothing != 0 && loss.kind != LossKind::crossEntropy)
    return usage("--label_smoothing: changes nothing for --loss " + spelled(loss.kind));
  if (llvm::Error error =
          checkRange("label_smoothing", loss.labelSmoothing, "label_smoothing", values.text("label_smoothing")))
    return error;
  return loss;
}

/// f16 ends at 65504 and 2^-24, so gradients are computed from a larger loss.
llvm::Expected<std::optional<LossScaleOptions>> lossScaleOptions(const OptionValues &values, DType paramDType) {
  const char *const ofDynamic[] = {"initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"};
  const bool isDynamic = values.real("loss_scale") == 0;
  if (paramDType != DType::f16 && changed(values, "loss_scale"))
    return usage("--loss_scale: changes nothing for --param_dtype " + values.text("param_dtype"));
  for (const char *name : ofDynamic)
    if (changed(values, name) && (paramDType != DType::f16 || !isDynamic))
      return usage("--" + llvm::Twine(name) + ": changes nothing " +
                   (isDynamic ? "for --param_dtype " + values.text("param_dtype") : "with a --loss_scale of your own"));
  if (paramDType != DType::f16)
    return std::nullopt;
  LossScaleOptions scale;
  scale.isDynamic = isDynamic;
  scale.window = values.integer("loss_scale_window");
  scale.hysteresis = values.integer("hysteresis");
  scale.minimum = values.real("min_loss_scale");
  const int64_t power = values.integer("initial_scale_power");
  if (power < 0 || power > 126)
    return usage("--initial_scale_power " + llvm::Twine(power) + ": from 0 to 126");
  scale.initial = isDynamic ? std::ldexp(1, static_cast<int>(power)) : values.real("loss_scale");
  if (!(scale.initial > 0 && std::isfinite(static_cast<float>(scale.initial))))
    return usage("--loss_scale " + values.text("loss_scale") + ": 0, or a number above it that f32 has");
  for (llvm::StringRef name : {"loss_scale_window", "hysteresis"})
    if (llvm::Error error = atLeastOne(values, name, int64_t(1) << 52))
      return error;
  if (!(scale.minimum >= 0 && scale.minimum <= scale.initial))
    return usage("--min_loss_scale " + values.text("min_loss_scale") + ": from 0 to the scale it starts at");
  return scale;
}

/// All types except that of the parameters. Requires that the choices of units are known.
llvm::Error precisionOptions(const OptionValues &values, PipelineOptions &options) {
  options.reduceDType = choiceOf<DType>(values, "reduce_dtype");
  options.frozenDType = choiceOf<DType>(values, "frozen_dtype");
  options.outputDType = choiceOf<DType>(values, "output_dtype");
  options.bufferDType = choiceFrom<DType>(values.text("buffer_dtype"));
  options.castForwardInputs = values.flag("cast_forward_inputs");
  options.keepLowPrecisionGrads = values.flag("keep_low_precision_grads");
  const bool computesLow = options.paramDType != DType::f32 ||
                           isGivenForUnits(options, [](const UnitChoices &unit) { return isLow(unit.paramDType); });
  const bool reducesLow = options.reduceDType != DType::f32 ||
                          isGivenForUnits(options, [](const UnitChoices &unit) { return isLow(unit.reduceDType); });
  if (reducesLow && options.worldSize == 1)
    return usage("reduce_dtype: changes nothing for --world_size 1, which sums nothing over ranks");
  if (!options.castForwardInputs && !computesLow)
    return usage("--no_cast_forward_inputs: changes nothing for --param_dtype fp32");
  if (options.bufferDType == DType::f32 && !computesLow)
    return usage("--buffer_dtype fp32: changes nothing for --param_dtype fp32");
  if (options.outputDType != DType::f32 && options.loss.kind == LossKind::model)
    return usage("--output_dtype " + values.text("output_dtype") +
                 ": the graph computes the loss, which stays fp32, with --loss model");
  if (options.keepLowPrecisionGrads && !reducesLow)
    return usage("--keep_low_precision_grads: changes nothing for --reduce_dtype fp32");
  if (options.keepLowPrecisionGrads && options.microSteps > 1)
    return usage("--keep_low_precision_grads: changes nothing for --gradient_accumulation_steps " +
                 llvm::Twine(options.microSteps) + ", whose sums over micro-steps are fp32");
  return llvm::Error::success();
}

} // namespace

bool changed(const OptionValues &values, llvm::StringRef name) {
  const OptionRow &row = *llvm::find_if(optionTable(), [&](const OptionRow &option) { return option.name == name; });
  return values.given(name) && !sameValue(values.text(name), row.defaultValue);
}

bool isGivenForUnits(const PipelineOptions &options, llvm::function_ref<bool(const UnitChoices &)> isSo) {
  return llvm::any_of(options.unitOverrides, [&](const UnitOverride &unit) { return isSo(unit.choices); });
}

llvm::Error checkPattern(llvm::StringRef option, llvm::StringRef text) {
  return NamePattern::make(option, text).takeError();
}

std::optional<std::optional<int64_t>> lossChunkOf(llvm::StringRef text) {
  if (text == "auto")
    return std::optional<int64_t>();
  int64_t positions = 0;
  if (text == "off" || (!text.getAsInteger(10, positions) && positions >= 1))
    return positions;
  return std::nullopt;
}

llvm::Expected<ImportOptions> importOptions(const OptionValues &values) {
  if (llvm::Error error = atLeastOne(values, "micro_batch_size", int64_t(1) << 31))
    return error;
  for (llvm::StringRef name : {"trainable", "frozen", "accept_changed"})
    if (llvm::Error error = checkPattern(name, values.text(name)))
      return error;
  ImportOptions options;
  options.microBatchSize = values.integer("micro_batch_size");
  for (llvm::StringRef binding : values.list("dim")) {
    auto [name, value] = binding.split('=');
    int64_t size;
    if (value.getAsInteger(10, size) || size < 1)
      return usage("--dim " + binding + ": NAME=VALUE with a positive integer is expected");
    options.dims[name.str()] = size;
  }
  options.trainMode = values.text("train_mode") == "train"  ? TrainMode::train
                      : values.text("train_mode") == "eval" ? TrainMode::eval
                                                            : TrainMode::keep;
  options.syncBatchNorm = values.flag("sync_batch_norm");
  options.trainableRegex = values.text("trainable").str();
  // Adapters train instead; what --trainable names trains beside them.
  const bool freezesAll = !values.text("lora").empty() && values.text("trainable").empty();
  options.frozenRegex = freezesAll ? ".*" : values.text("frozen").str();
  options.acceptChanged = values.text("accept_changed").str();
  for (llvm::StringRef tie : values.list("tie")) {
    auto [first, second] = tie.split('=');
    if (first.empty() || second.empty())
      return usage("--tie " + tie + ": A=B is expected");
    options.ties.emplace_back(first.str(), second.str());
  }
  options.noTie = values.flag("no_tie");
  options.keepShared = values.flag("keep_shared");
  options.restoreBiases = values.flag("restore_biases");
  options.init = llvm::StringSwitch<Init>(values.text("init"))
                     .Case("keep", Init::keep)
                     .Case("default", Init::defaults)
                     .Case("random", Init::random)
                     .Default(Init::file);
  // Weights are not needed if no program is written.
  options.weightsMayBeAbsent = options.init != Init::keep || values.flag("dry_run") ||
                               !values.text("compile_to").empty() || !values.list("passes").empty();
  options.facts = makeFactStore(cacheFolder());
  return options;
}

llvm::Expected<PipelineOptions> pipelineOptions(OptionValues &values, const Module &module) {
  for (auto [name, most] : {std::pair<llvm::StringRef, int64_t>{"world_size", 1 << 20},
                            {"max_inflight_all_gathers", 1 << 20},
                            {"gradient_accumulation_steps", 1 << 20}})
    if (llvm::Error error = atLeastOne(values, name, most))
      return error;
  PipelineOptions options;
  options.worldSize = values.integer("world_size");
  options.microBatchSize = values.integer("micro_batch_size");
  options.microSteps = values.integer("gradient_accumulation_steps");
  options.seed = static_cast<uint64_t>(values.integer("seed"));
  if (!values.given("param_dtype") && values.text("mixed_precision") != "no")
    values.resolve("param_dtype", values.text("mixed_precision").str());
  options.paramDType = choiceOf<DType>(values, "param_dtype");
  llvm::Expected<LossOptions> loss = lossOptions(values, module);
  if (!loss)
    return loss.takeError();
  options.loss = *loss;
  llvm::Expected<OptimizerOptions> optimizer = optimizerOptions(values);
  if (!optimizer)
    return optimizer.takeError();
  options.optimizer = *optimizer;
  if (llvm::Error error = loraOptions(values).moveInto(options.lora))
    return error;
  options.separateDocuments = values.flag("separate_documents");
  if (llvm::Error error = unitOptions(values, options))
    return error;
  DType scaled = isGivenForUnits(options, [](const UnitChoices &unit) { return unit.paramDType == DType::f16; })
                     ? DType::f16
                     : options.paramDType;
  if (llvm::Error error = lossScaleOptions(values, scaled).moveInto(options.optimizer.lossScale))
    return error;
  if (llvm::Error error = precisionOptions(values, options))
    return error;
  if (llvm::Error error = shardingOptions(values, options))
    return error;
  options.attentionByLibrary = values.text("attention") == "cudnn";
  options.minNumParams = values.integer("min_num_params");
  if (changed(values, "min_num_params") && options.autoWrapPolicy != WrapPolicy::sizeBased)
    return usage("--min_num_params: changes nothing for --auto_wrap_policy " + spelled(options.autoWrapPolicy));
  return options;
}

llvm::Expected<RunnerOptions> runnerOptions(const OptionValues &values) {
  RunnerOptions options;
  if (!values.text("compile_to").empty())
    options.stopAfter = stageFromName(values.text("compile_to"));
  options.only = values.list("passes").vec();
  options.skip = values.list("skip").vec();
  options.printBefore = values.list("print_ir_before").vec();
  options.printAfter = values.list("print_ir_after").vec();
  options.printAfterAll = values.flag("print_ir_after_all");
  options.dumpDirectory = values.text("dump_dir").str();
  return options;
}

} // namespace fsdpc
