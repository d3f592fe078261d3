// The command line of an emitted program.
//
// One table, `optionTable()`, holds every option. Parsing, `--help`, "did you mean" and the settings in the log use it.
// The program's own scalars (learning rate, betas, ...) are added from ProgramInfo::scalars. Rules: `-` and `_` are
// equivalent in names; a prefix `fsdp_` is accepted; `--key=value` or `--key value`, and values may begin with '-';
// booleans are --x, --no_x, --x=true; choices ignore case; the last value of a repeated option wins, except that lists
// grow.
#pragma once

#include "runtime/common/program.h"

#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace fsdpc::rt {

/// "100" (steps) or "1epoch".
struct Interval {
  std::int64_t count = 0; ///< 0: not given
  bool inEpochs = false;
};

struct ScalarValue {
  const ScalarInfo *scalar;
  double value;
};

struct Options {
  std::string trainData, valData, dataFormat = "auto", normalize, batch;
  std::vector<std::string> maps, fills;
  std::optional<std::int64_t> steps, epochs;
  std::string lrScheduler = "constant";
  std::int64_t warmupSteps = 0;
  double warmupRatio = 0; ///< of all steps
  double minLr = 0;
  Interval stepSize;
  double gamma = 0.1;
  bool shuffle = false;
  std::optional<std::int64_t> shuffleWindow;
  std::optional<std::int64_t> documentEnd;
  bool truncate = false;
  bool samplePacking = false;
  bool dropLast = true;
  std::optional<std::int64_t> seed; ///< default: the seed of the compile
  Interval evalEvery;
  std::optional<std::int64_t> evalSteps;
  std::optional<std::int64_t> earlyStopping; ///< evaluations
  bool evalOnly = false;
  std::string predict, loadModel, loadPartial, loadAdapters, saveModel, saveEma, saveOnnx, saveGradients;
  std::string checkpointFolder, checkpointInterval, saveBest;
  std::int64_t keepLatest = 2; ///< 0: all
  std::string checkpointStaging = "host";
  std::string resume = "none";
  std::string maxRuntime;
  std::string log, report, tensorboard;
  std::int64_t logFreq = 10; ///< steps
  std::string progress = "auto";
  std::string profile;
  bool mergeAdapters = false;
  bool memoryReport = false;
  bool timeMatmuls = false;
  std::optional<std::int64_t> threads;
  std::string streams;    ///< default: as compiled
  std::string stepReplay; ///< default: as compiled; set by a target's own option
  std::int64_t initTimeoutSeconds = 300;
  std::int64_t trainTimeoutSeconds = 100;
  std::string debugCollectives = "sequence";
  std::optional<std::int64_t> replicaCheck; ///< steps between two checks
  bool rerunCheck = false;
  double slowLinkMicroseconds = 0; ///< with the next: slows down collectives (SlowLink, platform.h)
  double slowLinkBytesPerMicrosecond = 0;
  bool help = false;
  bool version = false;

  std::vector<ScalarValue> scalars; ///< the run-time scalars that options set, with their resolved values
  std::set<std::string> given;      ///< names of the options that were on the command line

  double scalar(std::string_view name) const; ///< 0 if the program has none of that name
  std::pair<float, float> meanAndStd() const; ///< parsed from `normalize`, which must not be empty
  /// Parsed from `checkpointInterval`; one of them is 0, or both.
  std::int64_t checkpointSteps() const;
  double checkpointSeconds() const;
  double maxRuntimeSeconds() const; ///< 0: no limit
};

struct OptionRow {
  using Member =
      std::variant<bool Options::*, std::int64_t Options::*, double Options::*, std::string Options::*,
                   std::vector<std::string> Options::*, Interval Options::*, std::optional<std::int64_t> Options::*>;
  const char *name;
  const char *value; ///< placeholder; "a|b|c" lists the only values of a string option; "" for booleans
  Member member;
  const char *help;
  std::int64_t minimum = 0; ///< for integer options
};

/// The options of this program's target alone. A target that has some defines it next to its `Platform`; without that
/// (weak) definition there are none.
std::span<const OptionRow> targetOptions();

/// The options of every program, then those of its target.
std::span<const OptionRow> optionTable();

/// Throws Failure{usage}, the same on every rank, for unknown names, bad values and meaningless combinations.
Options parseOptions(const ProgramInfo &program, std::span<const char *const> arguments);

std::string helpText(const ProgramInfo &program);
/// The output of --version.
std::string versionText(const ProgramInfo &program);

/// Every option and run-time scalar with its resolved value as JSON, in the order of the table.
std::vector<std::pair<std::string, std::string>> resolvedSettings(const Options &options);
/// The same as one JSON object.
std::string settingsJson(const Options &options);

} // namespace fsdpc::rt
