#include "runtime/common/options.h"

#include "runtime/common/duration.h"
#include "runtime/common/failure.h"
#include "runtime/common/familiar_options.h"
#include "runtime/common/json.h"
#include "runtime/common/option_values.h"
#include "runtime/common/scalars.h"
#include "runtime/common/spelling.h"
#include "runtime/common/version.h"
#include "runtime/common/weight_averages.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fsdpc::rt {
namespace {

/// Options of optimizers. Options without a scalar in the program are compiled in.
constexpr std::string_view optimizerOptions[] = {"lr",        "betas",    "eps",        "weight_decay",
                                                 "momentum",  "nesterov", "dampening",  "rho",
                                                 "alpha",     "lr_decay", "max_norm",   "initial_accumulator_value",
                                                 "ema_decay", "eval_ema", "loss_scale", "spike_zscore"};

/// Scalars without options: the runtime or the program sets them.
bool hasNoOption(const ScalarInfo &scalar) {
  const std::string_view name = scalar.name;
  return name == "step" || name == "seed" || name == "rank" || scalar.factor || isUpdatedByProgram(name);
}

/// The scalar whose range and meaning it has.
std::string_view kindOf(const ScalarInfo &scalar) { return scalar.base[0] ? scalar.base : scalar.name; }

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool isBeta(std::string_view name) { return name == "beta1" || name == "beta2"; }

class Parser {
public:
  Parser(const ProgramInfo &program, std::span<const char *const> arguments) : program(program), arguments(arguments) {
    for (const ScalarInfo &scalar : program.scalars)
      if (!hasNoOption(scalar))
        options.scalars.push_back({&scalar, scalar.defaultValue});
  }

  Options parse() {
    while (at < arguments.size())
      parseOne(arguments[at++]);
    return std::move(options);
  }

private:
  void parseOne(std::string argument) {
    if (argument == "-h")
      argument = "--help";
    if (!argument.starts_with("--") || argument.size() == 2)
      usage("unexpected argument '" + argument +
            "': options begin with --, and a pattern that the shell must not expand needs quotes");
    const auto equals = argument.find('=');
    const std::string name =
        underscored(lowered(argument.substr(2, equals == std::string::npos ? equals : equals - 2)));
    std::optional<std::string> value;
    if (equals != std::string::npos)
      value = argument.substr(equals + 1);
    if (!set(name, value) && !(name.starts_with("fsdp_") && set(name.substr(5), value)))
      unknown(name);
  }

  bool set(const std::string &name, const std::optional<std::string> &value) {
    for (const OptionRow &row : optionTable()) {
      const bool isSwitch = std::holds_alternative<bool Options::*>(row.member);
      const bool negated = isSwitch && name == "no_" + std::string(row.name);
      if (name != row.name && !negated)
        continue;
      if (negated && value)
        usage("--" + name + " takes no value");
      if (isSwitch && !value)
        refuseFurtherWord(name);
      const std::string text = isSwitch ? (negated ? "false" : value.value_or("true")) : valueOf(name, value);
      setOption(options, row, text);
      options.given.insert(row.name);
      return true;
    }
    return setScalar(name, value);
  }

  bool setScalar(const std::string &name, const std::optional<std::string> &value) {
    if (name == "betas" && find("beta1") && find("beta2")) {
      const auto [first, second] = requirePair(name, valueOf(name, value));
      find("beta1")->value = first;
      find("beta2")->value = second;
      requireInRange(name, "beta1", first);
      requireInRange(name, "beta2", second);
    } else if (ScalarValue *scalar = isBeta(name) ? nullptr : find(name)) {
      scalar->value = requireDouble(name, valueOf(name, value));
      requireInRange(name, kindOf(*scalar->scalar), scalar->value);
      if (scalar->scalar->isInteger && scalar->value != std::floor(scalar->value))
        usage("--" + name + ": expected an integer");
      if (name == "max_norm" && scalar->value <= 0)
        usage("--max_norm: expected a number above 0; whether gradients are clipped is compiled in");
    } else if (contains(optimizerOptions, name) || name == "no_nesterov") {
      usage("--" + name + " is compiled in: this program (optimizer " + program.optimizer +
            ") has no such run-time value; compile again with it");
    } else {
      return false;
    }
    options.given.insert(name);
    return true;
  }

  ScalarValue *find(std::string_view name) {
    for (ScalarValue &scalar : options.scalars)
      if (name == scalar.scalar->name)
        return &scalar;
    return nullptr;
  }

  std::string valueOf(const std::string &name, const std::optional<std::string> &value) {
    if (value)
      return *value;
    if (at == arguments.size() || namesOption(arguments[at]))
      usage("--" + name + " needs a value");
    return arguments[at++];
  }

  /// A value may begin with dashes, but may not be the name of an option.
  bool namesOption(const std::string &word) {
    if (!word.starts_with("--"))
      return false;
    const std::string name = underscored(lowered(word.substr(2, word.find('=') - 2)));
    const auto rows = optionTable();
    return (name == "betas" && find("beta1")) || find(name) ||
           std::any_of(rows.begin(), rows.end(), [&](const OptionRow &row) {
             return name == row.name ||
                    (std::holds_alternative<bool Options::*>(row.member) && name == "no_" + std::string(row.name));
           });
  }

  void refuseFurtherWord(const std::string &name) {
    if (at < arguments.size() && arguments[at][0] != '-')
      usage("--" + name + " " + arguments[at] + ": takes no separate value; write --x, --no_x, --x=true or --x=false");
  }

  [[noreturn]] void unknown(const std::string &name) {
    if (const std::string familiar = familiarOption(name, /*isCompiler=*/false); !familiar.empty())
      usage("unknown option --" + name + familiar);
    std::vector<std::string> names;
    for (const OptionRow &row : optionTable()) {
      names.emplace_back(row.name);
      if (std::holds_alternative<bool Options::*>(row.member))
        names.push_back("no_" + std::string(row.name));
    }
    for (const ScalarValue &scalar : options.scalars)
      names.emplace_back(isBeta(scalar.scalar->name) ? "betas" : scalar.scalar->name);
    usage("unknown option --" + name + didYouMean(name, names, "--"));
  }

  const ProgramInfo &program;
  std::span<const char *const> arguments;
  std::size_t at = 0;
  Options options;
};

/// Fails for every given option in `names` if `meaningless`: it would change nothing. `why` ends the message.
void refuse(const Options &options, std::initializer_list<const char *> names, bool meaningless,
            const std::string &why) {
  for (const char *name : names)
    if (meaningless && options.given.contains(name))
      usage("--" + std::string(name) + " changes nothing " + why);
}

void checkSchedule(const Options &options) {
  const std::string &kind = options.lrScheduler;
  refuse(options, {"min_lr"}, kind == "constant" || kind == "step", "with --lr_scheduler " + kind);
  refuse(options, {"step_size", "gamma"}, kind != "step", "with --lr_scheduler " + kind);
  if (kind == "step" && options.stepSize.count == 0)
    usage("--lr_scheduler step needs --step_size, as in --step_size 1epoch");
  if (options.given.contains("min_lr") && options.minLr > options.scalar("lr"))
    usage("--min_lr " + jsonNumber(options.minLr) + ": above the learning rate, " + jsonNumber(options.scalar("lr")));
  if (options.given.contains("warmup_ratio") && options.given.contains("warmup_steps"))
    usage("--warmup_ratio and --warmup_steps exclude each other");
  if (options.steps && *options.steps > 0 && options.warmupSteps > *options.steps)
    usage("--warmup_steps " + std::to_string(options.warmupSteps) + ": more than the " +
          std::to_string(*options.steps) + " of --steps");
}

void checkData(const Options &options) {
  const bool trains = !options.evalOnly && options.steps != 0 && (!options.trainData.empty() || !options.batch.empty());
  if (!options.trainData.empty() && !options.batch.empty())
    usage("--train_data and --batch exclude each other");
  if (!options.batch.empty() && !options.steps)
    usage("--batch needs --steps");
  refuse(options, {"epochs", "shuffle", "drop_last"}, options.trainData.empty(), "without --train_data");
  refuse(options, {"shuffle_window"}, !options.shuffle, "without --shuffle");
  refuse(options, {"eval_every", "eval_steps", "early_stopping", "eval_only", "predict"}, options.valData.empty(),
         "without --val_data");
  refuse(options,
         {"train_data", "batch", "steps", "epochs", "save_gradients", "eval_every", "early_stopping", "profile"},
         options.evalOnly, "with --eval_only");
  refuse(options, {"save_gradients", "profile", "replica_check", "rerun_check"}, !trains, "where nothing is trained");
  const bool onlyWrites = options.steps == 0 || !options.predict.empty() || !options.saveModel.empty() ||
                          !options.saveEma.empty() || !options.saveOnnx.empty();
  if (!trains && !options.evalOnly && !onlyWrites)
    usage("nothing to do: give --train_data, --batch, or --val_data with --eval_only or --predict (see --help)");
  refuse(options, {"load_partial"}, options.loadModel.empty(), "without --load_model");
  if (!trains && options.steps.value_or(0) > 0)
    usage("--steps needs --train_data or --batch");
}

void checkAverages(const ProgramInfo &program, const Options &options) {
  refuse(options, {"save_ema"}, !keepsAverages(program), "in a program that was compiled without --ema_decay");
}

void checkAdapters(const ProgramInfo &program, const Options &options) {
  refuse(options, {"load_adapters", "merge_adapters"}, program.adapters.empty(),
         "in a program that was compiled without --lora");
  refuse(options, {"merge_adapters"}, options.saveModel.empty() && options.saveEma.empty(),
         "without --save_model or --save_ema");
}

void checkFills(const Options &options) {
  const auto countsDocuments = [](const std::string &fill) {
    return fill.ends_with("=positions") || fill.ends_with("=documents");
  };
  refuse(options, {"document_end"},
         std::none_of(options.fills.begin(), options.fills.end(), countsDocuments) && !options.samplePacking,
         "without --sample_packing or --fill INPUT=positions or documents");
}

void checkLog(const Options &options) {
  if (!options.report.empty() && options.log.empty())
    usage("--report " + options.report + " draws the figures of the log: give --log FILE.jsonl too");
}

void checkNormalize(Options &options) {
  if (!options.normalize.empty() && options.meanAndStd().second == 0)
    usage("--normalize " + options.normalize + ": the standard deviation is 0");
}

void checkCheckpoints(const Options &options) {
  const bool saves = !options.checkpointFolder.empty();
  refuse(options, {"checkpoint_interval", "keep_latest_k", "save_best", "checkpoint_staging", "max_runtime"}, !saves,
         "without --checkpoint_folder");
  const bool trains = !options.trainData.empty() || !options.batch.empty();
  refuse(options, {"checkpoint_folder"}, !trains && options.resume == "none", "where nothing is trained or resumed");
  if (!options.checkpointInterval.empty() && options.checkpointSteps() <= 0 && options.checkpointSeconds() <= 0)
    usage("--checkpoint_interval " + options.checkpointInterval + ": expected steps (100) or a time (10min)");
  if (!options.maxRuntime.empty() && options.maxRuntimeSeconds() <= 0)
    usage("--max_runtime " + options.maxRuntime + ": expected a time (3h59m)");
  refuse(options, {"save_best"}, options.valData.empty(), "without --val_data");
  if (options.resume == "auto" && !saves)
    usage("--resume auto needs --checkpoint_folder");
}

std::string defaultText(const OptionRow &row) {
  const std::string text = optionJson(Options{}, row);
  if (row.value[0] == '\0' || text == "null" || text == "[]")
    return "";
  return " (" + (text[0] == '"' ? text.substr(1, text.size() - 2) : text) + ")";
}

std::string helpLine(const std::string &left, const std::string &right) {
  const std::size_t column = 34;
  const std::string gap =
      left.size() < column ? std::string(column - left.size(), ' ') : "\n" + std::string(column + 2, ' ');
  return "  " + left + gap + right + "\n";
}

} // namespace

double Options::scalar(std::string_view name) const {
  for (const ScalarValue &scalar : scalars)
    if (name == scalar.scalar->name)
      return scalar.value;
  return 0;
}

std::int64_t Options::checkpointSteps() const {
  std::int64_t steps = 0;
  const char *end = checkpointInterval.data() + checkpointInterval.size();
  const auto [at, error] = std::from_chars(checkpointInterval.data(), end, steps);
  return error == std::errc() && at == end ? steps : 0;
}

double Options::checkpointSeconds() const { return parseDuration(checkpointInterval).value_or(0); }

double Options::maxRuntimeSeconds() const { return parseDuration(maxRuntime).value_or(0); }

std::pair<float, float> Options::meanAndStd() const {
  const auto [mean, deviation] = requirePair("normalize", normalize);
  return {static_cast<float>(mean), static_cast<float>(deviation)};
}

Options parseOptions(const ProgramInfo &program, std::span<const char *const> arguments) {
  Options options = Parser(program, arguments).parse();
  if (options.help || options.version)
    return options;
  checkSchedule(options);
  checkData(options);
  checkAverages(program, options);
  checkAdapters(program, options);
  checkFills(options);
  checkLog(options);
  checkNormalize(options);
  checkCheckpoints(options);
  if (!options.valData.empty() && options.evalEvery.count == 0 && !options.evalOnly)
    options.evalEvery = {1, true};
  if (!options.trainData.empty() && !options.steps && !options.epochs)
    options.epochs = 1;
  if (!options.seed)
    options.seed = static_cast<std::int64_t>(program.seed);
  options.streams = options.streams.empty() ? program.streams : options.streams;
  options.stepReplay = options.stepReplay.empty() ? program.stepReplay : options.stepReplay;
  return options;
}

std::string helpText(const ProgramInfo &program) {
  std::string text = std::string("Trains ") + program.modelName + " on " + std::to_string(program.worldSize) +
                     " rank(s), " + std::to_string(program.microBatchSize) +
                     " sample(s) per rank and step.\n\n  mpirun -n " + std::to_string(program.worldSize) +
                     " train --train_data DATA --steps 100\n\nOptions (default)\n";
  for (const OptionRow &row : optionTable()) {
    const std::string value = row.value[0] ? " " + std::string(row.value) : "";
    text += helpLine("--" + std::string(row.name) + value, row.help + defaultText(row));
  }
  text += "\nOptimizer values of this program (" + std::string(program.optimizer) + "), as compiled\n";
  const auto find = [&](std::string_view name) {
    return std::find_if(program.scalars.begin(), program.scalars.end(),
                        [&](const ScalarInfo &scalar) { return name == scalar.name; });
  };
  for (const ScalarInfo &scalar : program.scalars)
    if (!hasNoOption(scalar) && !isBeta(scalar.name))
      text += helpLine("--" + std::string(scalar.name) + " X", jsonNumber(scalar.defaultValue));
  if (find("beta1") != program.scalars.end() && find("beta2") != program.scalars.end())
    text += helpLine("--betas X,Y",
                     jsonNumber(find("beta1")->defaultValue) + "," + jsonNumber(find("beta2")->defaultValue));
  return text;
}

std::string versionText(const ProgramInfo &program) {
  return std::string("fsdpc ") + version + "\n" + program.modelName + ", " + std::to_string(program.worldSize) +
         " rank(s), plan " + program.planHash + "\n";
}

std::vector<std::pair<std::string, std::string>> resolvedSettings(const Options &options) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const OptionRow &row : optionTable())
    if (std::string_view(row.name) != "help" && std::string_view(row.name) != "version")
      settings.emplace_back(row.name, optionJson(options, row));
  for (const ScalarValue &scalar : options.scalars)
    settings.emplace_back(scalar.scalar->name, jsonNumber(scalar.value));
  return settings;
}

std::string settingsJson(const Options &options) {
  JsonObject settings;
  for (const auto &[name, value] : resolvedSettings(options))
    settings.addRaw(name, value);
  return settings.str();
}

} // namespace fsdpc::rt
