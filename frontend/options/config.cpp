// `--config FILE`: fsdpc's own names of options, or the file of another trainer.
#include "frontend/options/option_schema.h"
#include "ir/usage_error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(("--config " + message).str()); }

/// The values of an entry, which has one or a list; nullopt if it is neither.
std::optional<std::vector<std::string>> valuesOf(const Setting &entry) {
  const bool isList = entry.kind == Setting::Kind::list && llvm::all_of(entry.items, std::mem_fn(&Setting::isScalar));
  return entry.isScalar() || isList ? std::optional(entry.texts()) : std::nullopt;
}

} // namespace

/// `units: {REGEX: {key: value, ...}, ...}` is one --unit per entry, `groups` one --group.
llvm::Error OptionValues::readKeyed(llvm::StringRef option, const Setting &items) {
  for (const Setting &entry : items.items) {
    if (!entry.isMapping())
      return usage(items.where + ": " + option + "s maps regular expressions of names to keys and values");
    std::string item = entry.name + ":";
    for (const Setting &setting : entry.items) {
      if (!setting.isScalar())
        return usage(items.where + ": " + option + "s: " + item + " " + setting.name + " has no value");
      item += (&setting == &entry.items.front() ? "" : ",") + setting.name + "=" + setting.text;
    }
    if (llvm::Error error = set(option, llvm::StringRef(item), items.where))
      return error;
  }
  return llvm::Error::success();
}

/// `train: {train_data: d.bin, steps: 100}`: options of the program, which checks them.
llvm::Error OptionValues::readTrain(const Setting &options) {
  for (const Setting &entry : options.items) {
    std::optional<std::vector<std::string>> values = valuesOf(entry);
    if (entry.name.empty() || !values)
      return usage(options.where + ": train: " + entry.name + " is not an option with a value or a list");
    for (const std::string &value : *values)
      train.push_back("--" + entry.name + "=" + value);
  }
  return llvm::Error::success();
}

/// `launch: {arguments: [--hostfile, hosts]}`.
llvm::Error OptionValues::readLaunch(const Setting &options) {
  for (const Setting &entry : options.items) {
    std::optional<std::vector<std::string>> values = valuesOf(entry);
    if (entry.name != "arguments" || !values)
      return usage(options.where + ": launch has arguments alone, a list of words for mpirun or srun, not '" +
                   entry.name + "'; world_size is the number of ranks");
    llvm::append_range(launch, *values);
  }
  return llvm::Error::success();
}

llvm::Error OptionValues::readSetting(const Setting &setting) {
  const llvm::StringRef name = setting.name;
  if (setting.isMapping() && (name == "units" || name == "groups"))
    return readKeyed(name.drop_back(), setting);
  if (setting.isMapping() && (name == "train" || name == "launch"))
    return name == "train" ? readTrain(setting) : readLaunch(setting);
  if (setting.isScalar() && name == "model") {
    configModel = setting.text;
    return llvm::Error::success();
  }
  if (setting.isScalar())
    return set(name, llvm::StringRef(setting.text), setting.where);
  if (setting.kind != Setting::Kind::list)
    return usage(setting.where + ": " + name + " has no value");
  for (const Setting &item : setting.items) {
    if (!item.isScalar())
      return usage(setting.where + ": " + name + " holds something that is not a value");
    if (llvm::Error error = set(name, llvm::StringRef(item.text), setting.where))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error OptionValues::take(const Adopted &adopted) {
  llvm::append_range(adoptedLines, adopted.lines);
  llvm::append_range(refusals, adopted.refusals);
  for (const AdoptedOption &option : adopted.options) {
    if (option.receiver == Receiver::program)
      train.push_back("--" + option.name + "=" + option.value);
    if (option.receiver == Receiver::launcher)
      launch.insert(launch.end(), {option.name, option.value});
    if (option.receiver != Receiver::compiler)
      continue;
    if (llvm::Error error = set(option.name, llvm::StringRef(option.value), option.where))
      return usage(llvm::toString(std::move(error)));
    adoptedNames.insert(option.name);
  }
  return llvm::Error::success();
}

void OptionValues::takeBack(llvm::StringRef name, llvm::StringRef reason) {
  if (adoptedNames.erase(name.str()) == 0)
    return;
  values.erase(name.str());
  givenNames.erase(name.str());
  for (ConfigLine &line : adoptedLines)
    if (line.option == name && !line.set.empty())
      line = {line.text + ": not read: " + reason.str()};
}

llvm::Error OptionValues::readConfig(llvm::StringRef path) {
  llvm::Expected<Setting> root = readSettings(path);
  if (!root)
    return root.takeError();
  if (const Trainer *trainer = trainerOf(*root)) {
    llvm::Expected<Adopted> adopted = adopt(*trainer, *root, path);
    return adopted ? take(*adopted) : adopted.takeError();
  }
  for (const Setting &setting : root->items)
    if (llvm::Error error = readSetting(setting))
      return error;
  return llvm::Error::success();
}

llvm::Error OptionValues::checkRefusals() {
  std::string text;
  for (const auto &[setting, option] : refusals) {
    const bool isDecided = givenByCommandLine.contains(option);
    if (isDecided)
      adoptedLines.push_back({setting + "; --" + option + " " + this->text(option).str() + " decides instead"});
    else
      text += (text.empty() ? "" : "\n--config ") + setting +
              (option.empty() ? "" : "; --" + option + " can decide instead");
  }
  return text.empty() ? llvm::Error::success() : usage(text);
}

std::vector<std::string> OptionValues::configLines() const {
  std::vector<std::string> lines;
  for (const ConfigLine &line : adoptedLines) {
    const std::string option = ": --" + line.option;
    lines.push_back(line.text + (line.option.empty()  ? ""
                                 : !line.set.empty()  ? " -> " + line.set
                                 : given(line.option) ? option + " " + text(line.option).str() + " is given"
                                                      : option + " is not set"));
  }
  return lines;
}

void printConfigLines(const OptionValues &values) {
  for (const std::string &line : values.configLines())
    llvm::errs() << "config: " << line << '\n';
}

} // namespace fsdpc
