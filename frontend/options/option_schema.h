// The one options schema: parsing, help, completion, did-you-mean, the config reader, OUT/options.json and the README's
// table come from it.
//
// Rules: `-` and `_` are the same in names, an `fsdp_` prefix is accepted, choices ignore case, booleans
// are --x, --no_x, --x=true, values may begin with `-`, the last of a repeated option wins, lists grow.
#pragma once

#include "frontend/configs/trainer.h"
#include "ir/choices.h"
#include "ir/usage_error.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fsdpc {

enum class OptionKind {
  boolean,
  integer,
  real,
  text,
  choice,
  list,  ///< items are also separated by commas
  lines, ///< a list whose items hold commas
};

struct OptionRow {
  llvm::StringRef name;
  OptionKind kind;
  llvm::StringRef defaultValue; ///< "" where there is none
  llvm::StringRef values;       ///< placeholder; "a|b|c" for choices, "a=b" names a synonym of b
  llvm::StringRef group;
  llvm::StringRef help;
  /// Not part of what the compile produces (dumps, output path): left out of OUT/options.json.
  bool isAboutThisRun = false;
  /// The value of a choice that is given without one. `--no_NAME` then means the default.
  llvm::StringRef impliedValue = {};
  Matters matters = Matters::always; ///< the plans that the option affects; for others it is an error
};

llvm::ArrayRef<OptionRow> optionTable();

/// Values after parsing, validated against the schema.
class OptionValues {
public:
  /// Command line after the subcommand. `--config FILE` is read at its position, so later options override it.
  static llvm::Expected<OptionValues> parse(llvm::ArrayRef<std::string> arguments);

  llvm::StringRef text(llvm::StringRef name) const;
  int64_t integer(llvm::StringRef name) const;
  double real(llvm::StringRef name) const;
  bool flag(llvm::StringRef name) const;
  llvm::ArrayRef<std::string> list(llvm::StringRef name) const;
  bool given(llvm::StringRef name) const { return givenNames.contains(name.str()); }
  llvm::ArrayRef<std::string> positional() const { return positionals; }
  /// Of a configuration, for `fsdpc run`: `train` as words for the program, `launch` as further words for the launcher.
  llvm::ArrayRef<std::string> trainWords() const { return train; }
  llvm::ArrayRef<std::string> launchWords() const { return launch; }
  /// What was used of files of other trainers, and what was not, one line for each of their keys.
  std::vector<std::string> configLines() const;
  /// Unsets an option that is no list, if a file of another trainer was the last to set it. configLines() then has the
  /// reason.
  void takeBack(llvm::StringRef name, llvm::StringRef reason);
  bool hasConfigOfOthers() const { return !adoptedLines.empty(); }
  /// The value as it is stored if the option is given with it.
  static llvm::Expected<std::string> checked(llvm::StringRef name, llvm::StringRef value);
  /// Sets the resolved value of a default that depends on other options.
  void resolve(llvm::StringRef name, std::string value) { values[name.str()] = std::move(value); }
  /// Adds an item to a list.
  void append(llvm::StringRef name, std::string value) { lists[name.str()].push_back(std::move(value)); }

  /// Every option that shapes the result with its resolved value: OUT/options.json. The model's path is `model`.
  /// On one line, or indented for people.
  std::string toJson(bool indented) const;

private:
  llvm::Error set(llvm::StringRef name, std::optional<llvm::StringRef> value, llvm::StringRef where);
  llvm::Error readConfig(llvm::StringRef path);
  llvm::Error readSetting(const Setting &setting);
  llvm::Error readTrain(const Setting &options);
  llvm::Error readLaunch(const Setting &options);
  llvm::Error readKeyed(llvm::StringRef option, const Setting &items);
  llvm::Error take(const Adopted &adopted);
  /// What a file asks for and fsdpc does not have is an error, unless an option of the command line decides it.
  llvm::Error checkRefusals();
  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<std::string>> lists;
  std::set<std::string> givenNames, givenByCommandLine;
  std::set<std::string> adoptedNames; ///< last set by a file of another trainer
  std::vector<std::string> positionals, train, launch;
  std::vector<ConfigLine> adoptedLines;
  std::vector<RefusedSetting> refusals;
  std::string configModel; ///< used if the command line names none
};

/// Prints configLines() to stderr.
void printConfigLines(const OptionValues &values);

/// The keys of --unit, as it spells them (ir/choices.h).
std::vector<std::string> unitKeys();

/// The first word of a command line, unless it is a model.
llvm::ArrayRef<llvm::StringRef> subcommands();

/// " (did you mean X?)" for the nearest of the names, or nothing if none is near.
std::string didYouMean(llvm::StringRef wanted, llvm::ArrayRef<llvm::StringRef> names);

} // namespace fsdpc
