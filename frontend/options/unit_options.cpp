// --auto_wrap_policy with its options, --ignored_params and --unit.
#include "frontend/options/resolve.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

llvm::Expected<const UnitChoice *> unitChoiceOf(llvm::StringRef text) {
  std::string key = text.trim().lower();
  std::replace(key.begin(), key.end(), '-', '_');
  llvm::StringRef plain = key;
  plain.consume_front("fsdp_");
  for (const UnitChoice &choice : unitChoices())
    if (choice.option == plain)
      return &choice;
  const std::vector<std::string> keys = unitKeys();
  return usage("'" + key + "' is not one of " + llvm::join(keys, ", ") +
               didYouMean(plain, llvm::SmallVector<llvm::StringRef, 12>(keys.begin(), keys.end())));
}

/// The value as the text form spells it.
llvm::Expected<std::string> unitValue(const OptionValues &values, const UnitChoice &choice, llvm::StringRef value) {
  llvm::StringRef key = choice.option;
  if (key == "strategy" && value.equals_insensitive("auto"))
    return usage("strategy=auto: is for all units, --strategy auto");
  if (choice.takesNumber)
    return value.lower();
  llvm::Expected<std::string> checked = OptionValues::checked(key, value);
  if (!checked)
    return checked.takeError();
  const bool isOn = *checked == "true";
  if (key == "offload_params")
    return spelled(isOn ? Offload::params : values.flag("offload_optimizer") ? Offload::optimizer : Offload::none);
  return isOn || *checked == "false" ? spelled(isOn) : *checked;
}

/// 'REGEX:KEY=VALUE,...': the expression may contain colons, the part after the last one may not.
llvm::Expected<UnitOverride> unitOverride(const OptionValues &values, llvm::StringRef text) {
  auto [pattern, settings] = text.rsplit(':');
  if (pattern.empty() || settings.empty())
    return usage("REGEX:KEY=VALUE,... is expected");
  UnitOverride result;
  result.pattern = pattern.str();
  for (llvm::StringRef setting : llvm::split(settings, ',')) {
    auto [name, value] = setting.split('=');
    if (!setting.contains('='))
      return usage("'" + setting + "' is not KEY=VALUE");
    llvm::Expected<const UnitChoice *> choice = unitChoiceOf(name);
    if (!choice)
      return choice.takeError();
    llvm::Expected<std::string> checked = unitValue(values, **choice, value.trim());
    if (!checked)
      return checked.takeError();
    if (!(*choice)->read(*checked, result.choices))
      return usage((*choice)->name + " " + value + ": " + (*choice)->values() + " is expected");
    result.made.push_back(*choice);
  }
  return result;
}

/// Checks an option that one policy requires and that has no effect on the others.
llvm::Error checkPolicyOption(const OptionValues &values, llvm::StringRef option, llvm::StringRef policy) {
  bool isChosen = values.text("auto_wrap_policy") == policy;
  bool isGiven = !values.text(option).empty() || !values.list(option).empty();
  if (isGiven && !isChosen)
    return usage("--" + option + ": changes nothing for --auto_wrap_policy " + values.text("auto_wrap_policy") +
                 "; it belongs to " + policy);
  if (isChosen && !isGiven)
    return usage("--auto_wrap_policy " + policy + ": --" + option + " is missing");
  return llvm::Error::success();
}

} // namespace

std::vector<std::string> unitKeys() {
  std::vector<std::string> keys;
  for (const UnitChoice &choice : unitChoices())
    keys.push_back(choice.option.str());
  return keys;
}

llvm::Error unitOptions(const OptionValues &values, PipelineOptions &options) {
  options.autoWrapPolicy = choiceOf<WrapPolicy>(values, "auto_wrap_policy");
  for (auto [option, policy] :
       {std::pair<llvm::StringRef, llvm::StringRef>{"transformer_cls_to_wrap", "transformer_based_wrap"},
        {"wrap_pattern", "manual"}})
    if (llvm::Error error = checkPolicyOption(values, option, policy))
      return error;
  for (llvm::StringRef name : {"wrap_pattern", "ignored_params"})
    if (llvm::Error error = checkPattern(name, values.text(name)))
      return error;
  options.transformerClsToWrap = values.list("transformer_cls_to_wrap").vec();
  options.wrapPattern = values.text("wrap_pattern").str();
  options.ignoredParams = values.text("ignored_params").str();
  for (llvm::StringRef text : values.list("unit")) {
    if (llvm::Error error = checkPattern("unit", text.rsplit(':').first))
      return error;
    llvm::Expected<UnitOverride> parsed = unitOverride(values, text);
    if (!parsed)
      return usage("--unit " + text + ": " + llvm::toString(parsed.takeError()));
    options.unitOverrides.push_back(std::move(*parsed));
  }
  return llvm::Error::success();
}

} // namespace fsdpc
