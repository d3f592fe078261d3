// --group, --no_decay and --layer_decay.
#include "frontend/options/key_values.h"
#include "frontend/options/resolve.h"
#include "passes/support/optimizer_layout.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

/// What a group can set for this optimizer.
std::vector<std::string> groupKeys(const OptimizerOptions &optimizer) {
  std::vector<std::string> keys = {"name", "lr_scale"};
  for (const std::string &scalar : optimizerLayout(optimizer).scalars)
    if (scalar == "beta1")
      keys.push_back("betas");
    else if (optimizer.scalars.contains(scalar) && scalar != "beta2")
      keys.push_back(scalar);
  return keys;
}

llvm::Error setNumber(ParameterGroup &group, const std::string &key, llvm::StringRef value) {
  double number;
  if (value.getAsDouble(number))
    return usage(key + "=" + value + ": a number is expected");
  if (key != "lr_scale") {
    group.scalars[key] = number;
    return checkRange(key, number, key, value);
  }
  if (!(number >= 0 && std::isfinite(number)))
    return usage("lr_scale=" + value + ": a number of at least 0 is expected");
  group.learningRateScale = number;
  return llvm::Error::success();
}

llvm::Error setValue(ParameterGroup &group, const std::string &key, llvm::StringRef value) {
  if (key == "name") {
    group.name = value.str();
    const bool isWord = llvm::all_of(value, [](char c) { return llvm::isLower(c) || llvm::isDigit(c) || c == '_'; });
    if (value.empty() || !isWord || value.starts_with("layer") || value == "no_decay")
      return usage("name=" + value + ": a word of small letters, digits and _ is expected, not layer... or no_decay");
    return llvm::Error::success();
  }
  if (key != "betas")
    return setNumber(group, key, value);
  const auto [first, second] = value.trim("() ").split(',');
  if (llvm::Error error = setNumber(group, "beta1", first.trim()))
    return error;
  return setNumber(group, "beta2", second.trim());
}

/// 'REGEX:KEY=VALUE,...': the expression may contain colons, the part after the last one may not.
llvm::Expected<ParameterGroup> groupOf(llvm::StringRef text, llvm::ArrayRef<std::string> keys) {
  const auto [pattern, settings] = text.rsplit(':');
  if (pattern.empty() || settings.empty())
    return usage("REGEX:KEY=VALUE,... is expected");
  if (llvm::Error error = checkPattern("group", pattern))
    return error;
  ParameterGroup group;
  group.pattern = pattern.str();
  for (const auto &[key, value] : keyValues(settings)) {
    if (llvm::Error error = checkKey(key, keys))
      return error;
    if (llvm::Error error = setValue(group, key, value))
      return error;
  }
  if (group.learningRateScale && group.scalars.contains("lr"))
    return usage("lr and lr_scale exclude each other");
  if (!group.learningRateScale && group.scalars.empty())
    return usage("sets nothing; the keys are " + llvm::join(keys, ", "));
  return group;
}

} // namespace

llvm::Error groupOptions(const OptionValues &values, OptimizerOptions &optimizer) {
  const std::vector<std::string> keys = groupKeys(optimizer);
  llvm::StringSet<> names;
  for (llvm::StringRef text : values.list("group")) {
    llvm::Expected<ParameterGroup> group = groupOf(text, keys);
    if (!group)
      return usage("--group " + text + ": " + llvm::toString(group.takeError()));
    if (group->name.empty())
      group->name = "group" + std::to_string(optimizer.groups.size() + 1);
    if (!names.insert(group->name).second)
      return usage("--group " + text + ": another group is called " + group->name + " too");
    optimizer.groups.push_back(std::move(*group));
  }
  optimizer.noDecay = values.text("no_decay").str();
  if (llvm::Error error = checkPattern("no_decay", optimizer.noDecay))
    return error;
  if (values.text("layer_decay").empty())
    return llvm::Error::success();
  optimizer.layerDecay = values.real("layer_decay");
  if (!(*optimizer.layerDecay > 0 && *optimizer.layerDecay <= 1))
    return usage("--layer_decay " + values.text("layer_decay") + ": a number above 0 and at most 1 is expected");
  return llvm::Error::success();
}

} // namespace fsdpc
