// --auto_wrap_policy with what belongs to it, --ignored_params and --unit.
#include "frontend/driver/resolve.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral unitKeys[] = {
    "strategy",     "reshard_after_forward", "forward_prefetch", "backward_prefetch", "activation_checkpointing",
    "accumulation", "param_dtype",           "reduce_dtype",     "offload_params",    "offload_activations"};

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

llvm::Expected<std::string> unitKey(llvm::StringRef text) {
  std::string key = text.trim().lower();
  std::replace(key.begin(), key.end(), '-', '_');
  llvm::StringRef plain = key;
  plain.consume_front("fsdp_");
  llvm::StringRef nearest;
  unsigned best = 8;
  for (llvm::StringRef known : unitKeys) {
    if (known == plain)
      return plain.str();
    if (unsigned distance = known.edit_distance(plain, true, best); distance < best) {
      best = distance;
      nearest = known;
    }
  }
  return usage("'" + key + "' is not one of " + llvm::join(llvm::ArrayRef(unitKeys), ", ") +
               (nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
}

/// As the field of Unit has it.
llvm::Expected<std::string> unitValue(llvm::StringRef key, llvm::StringRef value) {
  if (key == "reshard_after_forward") {
    std::string plain = value.lower();
    if (llvm::Error error = checkReshard(plain))
      return error;
    return plain;
  }
  if (key == "strategy" && value.equals_insensitive("auto"))
    return usage("strategy=auto: is for all units, --strategy auto");
  llvm::Expected<std::string> checked = OptionValues::checked(key, value);
  if (!checked || (key != "forward_prefetch" && key != "offload_activations"))
    return checked;
  return std::string(*checked == "true" ? "on" : "off");
}

/// 'REGEX:KEY=VALUE,...': the expression may hold colons, what is behind the last one may not.
llvm::Expected<UnitOverride> unitOverride(const OptionValues &values, llvm::StringRef text) {
  auto [pattern, settings] = text.rsplit(':');
  if (pattern.empty() || settings.empty())
    return usage("REGEX:KEY=VALUE,... is expected");
  UnitOverride result;
  result.pattern = pattern.str();
  std::string problem;
  if (!llvm::Regex(("^(" + pattern + ")$").str()).isValid(problem))
    return usage(problem);
  for (llvm::StringRef setting : llvm::split(settings, ',')) {
    auto [name, value] = setting.split('=');
    if (!setting.contains('='))
      return usage("'" + setting + "' is not KEY=VALUE");
    llvm::Expected<std::string> key = unitKey(name);
    if (!key)
      return key.takeError();
    llvm::Expected<std::string> checked = unitValue(*key, value.trim());
    if (!checked)
      return checked.takeError();
    result.values[*key] = std::move(*checked);
  }
  // On a unit it is one choice of three.
  if (auto offload = result.values.find("offload_params"); offload != result.values.end()) {
    bool isOn = offload->second == "true";
    result.values.erase(offload);
    result.values["offload"] = isOn ? "params" : values.flag("offload_optimizer") ? "optimizer" : "none";
  }
  return result;
}

/// An option of one policy: needed there and without effect elsewhere.
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

llvm::Error unitOptions(const OptionValues &values, PipelineOptions &options) {
  options.autoWrapPolicy = values.text("auto_wrap_policy").str();
  for (auto [option, policy] :
       {std::pair<llvm::StringRef, llvm::StringRef>{"transformer_cls_to_wrap", "transformer_based_wrap"},
        {"wrap_pattern", "manual"}})
    if (llvm::Error error = checkPolicyOption(values, option, policy))
      return error;
  for (llvm::StringRef name : {"wrap_pattern", "ignored_params"})
    if (llvm::Error error = checkRegex(values, name))
      return error;
  options.transformerClsToWrap = values.list("transformer_cls_to_wrap").vec();
  options.wrapPattern = values.text("wrap_pattern").str();
  options.ignoredParams = values.text("ignored_params").str();
  for (llvm::StringRef text : values.list("unit")) {
    llvm::Expected<UnitOverride> parsed = unitOverride(values, text);
    if (!parsed)
      return usage("--unit " + text + ": " + llvm::toString(parsed.takeError()));
    options.unitOverrides.push_back(std::move(*parsed));
  }
  return llvm::Error::success();
}

} // namespace fsdpc
