#include "frontend/options/option_schema.h"

#include "runtime/common/familiar_options.h"
#include "runtime/common/spelling.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <cmath>

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral commandLine = "command line"; ///< where an option is, for messages

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

std::string canonicalName(llvm::StringRef name) {
  std::string canonical = name.lower();
  std::replace(canonical.begin(), canonical.end(), '-', '_');
  if (llvm::StringRef rest = canonical; rest.consume_front("fsdp_"))
    return rest.str();
  return canonical;
}

const OptionRow *findRow(llvm::StringRef name) {
  for (const OptionRow &row : optionTable())
    if (row.name == name)
      return &row;
  return nullptr;
}

bool isList(const OptionRow &row) { return row.kind == OptionKind::list || row.kind == OptionKind::lines; }

/// Ends the message about an unknown option.
std::string nearestOption(llvm::StringRef wanted) {
  if (std::string familiar = rt::familiarOption(wanted, /*isCompiler=*/true); !familiar.empty())
    return familiar;
  llvm::SmallVector<llvm::StringRef, 64> names;
  for (const OptionRow &row : optionTable())
    names.push_back(row.name);
  return didYouMean(wanted, names);
}

/// As in names of options, `-` and `_` are the same and case is ignored.
std::string canonicalChoice(llvm::StringRef value) {
  std::string canonical = value.lower();
  std::replace(canonical.begin(), canonical.end(), '-', '_');
  return canonical;
}

llvm::Expected<std::string> checkedChoice(const OptionRow &row, llvm::StringRef value) {
  llvm::SmallVector<llvm::StringRef, 8> entries, names;
  row.values.split(entries, '|');
  const std::string wanted = canonicalChoice(value);
  for (llvm::StringRef entry : entries) {
    auto [name, meaning] = entry.split('=');
    names.push_back(name);
    if (name == wanted)
      return (meaning.empty() ? name : meaning).str();
  }
  return usage("--" + row.name + " " + value + ": not one of " + llvm::join(names, ", ") + didYouMean(wanted, names));
}

/// Returns whether the word is a value of the row. If not, a choice that may be given without a value has none.
bool namesChoice(const OptionRow &row, llvm::StringRef word) {
  llvm::SmallVector<llvm::StringRef, 8> entries;
  row.values.split(entries, '|');
  const std::string wanted = canonicalChoice(word);
  return llvm::any_of(entries, [&](llvm::StringRef entry) { return wanted == entry.split('=').first; });
}

/// A value may begin with dashes, but must not be an option.
bool namesOption(llvm::StringRef word) {
  return word == "-o" || (word.consume_front("--") && findRow(canonicalName(word.split('=').first)));
}

/// A word that can be neither an option nor a file nor a subcommand was meant as a value of the option before it.
bool looksLikeAValue(llvm::StringRef word) {
  return !word.starts_with("-") && !word.contains('.') && !word.contains('/') &&
         !llvm::is_contained(subcommands(), word) && !llvm::sys::fs::exists(word);
}

llvm::Expected<std::string> checkedValue(const OptionRow &row, llvm::StringRef value) {
  int64_t integer;
  double real;
  switch (row.kind) {
  case OptionKind::integer:
    if (value.getAsInteger(10, integer))
      return usage("--" + row.name + " " + value + ": an integer is expected");
    return value.str();
  case OptionKind::real:
    if (value.getAsDouble(real) || !std::isfinite(real))
      return usage("--" + row.name + " " + value + ": a number is expected");
    return value.str();
  case OptionKind::choice: return checkedChoice(row, value);
  case OptionKind::boolean:
    for (llvm::StringRef word : {"true", "1", "yes", "on"})
      if (value.equals_insensitive(word))
        return std::string("true");
    for (llvm::StringRef word : {"false", "0", "no", "off"})
      if (value.equals_insensitive(word))
        return std::string("false");
    return usage("--" + row.name + "=" + value + ": true or false is expected");
  default: return value.str();
  }
}

} // namespace

llvm::ArrayRef<llvm::StringRef> subcommands() {
  static constexpr llvm::StringRef names[] = {"inspect", "simulate",   "calibrate", "estimate", "verify",
                                              "reduce",  "checkpoint", "run",       "report",   "init",
                                              "help",    "completion", "man"};
  return names;
}

std::string didYouMean(llvm::StringRef wanted, llvm::ArrayRef<llvm::StringRef> names) {
  const std::string nearest = rt::nearestName(std::string_view(wanted), {names.begin(), names.end()});
  return nearest.empty() ? "" : " (did you mean " + nearest + "?)";
}

llvm::Error OptionValues::set(llvm::StringRef name, std::optional<llvm::StringRef> value, llvm::StringRef where) {
  std::string canonical = canonicalName(name);
  const OptionRow *row = findRow(canonical);
  bool negated = false;
  if (!row && llvm::StringRef(canonical).starts_with("no_")) {
    row = findRow(llvm::StringRef(canonical).drop_front(3));
    negated = row && (row->kind == OptionKind::boolean || !row->impliedValue.empty());
    row = negated ? row : nullptr;
  }
  if (!row)
    return usage(where + ": unknown option " + name + nearestOption(canonical));
  if (value && value->empty())
    return usage(where + ": --" + row->name + ": a value is missing");
  givenNames.insert(row->name.str());
  adoptedNames.erase(row->name.str());
  if (where == commandLine)
    givenByCommandLine.insert(row->name.str());
  if (row->kind == OptionKind::lines) {
    lists[row->name.str()].push_back(value->str());
    return llvm::Error::success();
  }
  if (row->kind == OptionKind::list) {
    // Lists of passes may use commas. Names of dims and parameters contain none.
    llvm::SmallVector<llvm::StringRef, 4> parts;
    value->split(parts, ',', -1, false);
    for (llvm::StringRef part : parts)
      lists[row->name.str()].push_back(part.str());
    return llvm::Error::success();
  }
  if (negated && value)
    return usage(where + ": --" + name + " takes no value");
  llvm::StringRef bare = row->impliedValue.empty() ? "true" : row->impliedValue;
  llvm::StringRef opposite = row->impliedValue.empty() ? "false" : row->defaultValue;
  llvm::Expected<std::string> checked = checkedValue(*row, negated ? opposite : value.value_or(bare));
  if (!checked)
    return where == commandLine ? checked.takeError() : usage(where + ": " + llvm::toString(checked.takeError()));
  values[row->name.str()] = *checked;
  return llvm::Error::success();
}

llvm::Expected<OptionValues> OptionValues::parse(llvm::ArrayRef<std::string> arguments) {
  OptionValues result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i];
    if (argument == "-o")
      argument = "--output";
    if (argument == "-h")
      argument = "--help";
    if (!argument.consume_front("--")) {
      if (argument.starts_with("-") && argument != "-")
        return usage("command line: unknown option " + argument + ": names begin with -- (only -o and -h are short)" +
                     nearestOption(canonicalName(argument.ltrim('-'))));
      result.positionals.push_back(arguments[i]);
      continue;
    }
    auto [name, inlineValue] = argument.split('=');
    bool hasInline = argument.contains('=');
    std::optional<llvm::StringRef> value;
    if (hasInline)
      value = inlineValue;
    const OptionRow *row = findRow(canonicalName(name));
    bool mayOmitValue = row && !row->impliedValue.empty();
    const bool hasNext = i + 1 < arguments.size();
    if (mayOmitValue && !hasInline && hasNext &&
        (namesChoice(*row, arguments[i + 1]) || looksLikeAValue(arguments[i + 1])))
      value = arguments[++i];
    else if (row && row->kind == OptionKind::boolean && !hasInline && hasNext && looksLikeAValue(arguments[i + 1]))
      return usage("--" + name + " " + arguments[i + 1] + ": takes no separate value; write --" + name + ", --no_" +
                   name + ", --" + name + "=true or --" + name + "=false");
    else if (row && row->kind != OptionKind::boolean && !mayOmitValue && !hasInline) {
      if (i + 1 == arguments.size() || namesOption(arguments[i + 1]))
        return usage("--" + name + ": a value is missing");
      value = arguments[++i];
    }
    if (row && row->name == "config") {
      if (llvm::Error error = result.readConfig(*value))
        return error;
      continue;
    }
    if (llvm::Error error = result.set(name, value, commandLine))
      return error;
  }
  if (llvm::Error error = result.checkRefusals())
    return error;
  const bool hasModel = result.positionals.size() > 1 ||
                        (result.positionals.size() == 1 && !llvm::is_contained(subcommands(), result.positionals[0]));
  if (!hasModel && !result.configModel.empty())
    result.positionals.push_back(result.configModel);
  return result;
}

llvm::Expected<std::string> OptionValues::checked(llvm::StringRef name, llvm::StringRef value) {
  const OptionRow *row = findRow(name);
  assert(row && "options are asked for by their schema name");
  return checkedValue(*row, value);
}

llvm::StringRef OptionValues::text(llvm::StringRef name) const {
  auto found = values.find(name.str());
  if (found != values.end())
    return found->second;
  const OptionRow *row = findRow(name);
  assert(row && "options are asked for by their schema name");
  return row->defaultValue;
}

int64_t OptionValues::integer(llvm::StringRef name) const {
  int64_t value = 0;
  bool bad = text(name).getAsInteger(10, value);
  assert(!bad && "integers are checked when parsed; absent ones are not asked for");
  (void)bad;
  return value;
}

double OptionValues::real(llvm::StringRef name) const {
  double value = 0;
  bool bad = text(name).getAsDouble(value);
  assert(!bad && "numbers are checked when parsed; absent ones are not asked for");
  (void)bad;
  return value;
}

bool OptionValues::flag(llvm::StringRef name) const { return text(name) == "true"; }

llvm::ArrayRef<std::string> OptionValues::list(llvm::StringRef name) const {
  auto found = lists.find(name.str());
  return found == lists.end() ? llvm::ArrayRef<std::string>() : llvm::ArrayRef<std::string>(found->second);
}

std::string OptionValues::toJson(bool indented) const {
  llvm::json::Object object;
  if (!positionals.empty())
    object["model"] = positionals.front();
  for (const OptionRow &row : optionTable()) {
    if (row.isAboutThisRun)
      continue;
    if (isList(row)) {
      if (!list(row.name).empty())
        object[row.name] = llvm::json::Array(list(row.name));
      continue;
    }
    llvm::StringRef value = text(row.name);
    if (!value.empty())
      object[row.name] = value;
  }
  llvm::json::Value value(std::move(object));
  return indented ? llvm::formatv("{0:2}", value).str() : llvm::formatv("{0}", value).str();
}

} // namespace fsdpc
