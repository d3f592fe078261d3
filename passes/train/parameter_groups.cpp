#include "passes/train/parameter_groups.h"

#include "ir/name_pattern.h"
#include "ir/usage_error.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

namespace fsdpc {

bool isNormOrBias(const Parameter &parameter) {
  return parameter.type.rank() <= 1 || llvm::StringRef(parameter.name).rsplit('.').second == "bias";
}

class GroupPlanner {
public:
  GroupPlanner(const Module &module, llvm::ArrayRef<const Parameter *> trained, const OptimizerOptions &options,
               const OptimizerLayout &layout)
      : module(module), trained(trained), options(options), layout(layout) {}

  llvm::Expected<ParameterGroups> run() {
    if (llvm::Error error = claim())
      return error;
    if (llvm::Error error = findUndecayed())
      return error;
    numberLayers();
    for (const Parameter *parameter : trained) {
      std::vector<std::string> &names = result.scalars[parameter];
      for (const std::string &scalar : layout.scalars)
        names.push_back(stateFor(*parameter, scalar));
    }
    return std::move(result);
  }

private:
  /// The trained parameters that the expression matches. Error: none.
  llvm::Expected<std::vector<const Parameter *>> matching(llvm::StringRef option, llvm::StringRef text) const {
    llvm::Expected<NamePattern> pattern = NamePattern::make(option, text);
    if (!pattern)
      return pattern.takeError();
    std::vector<const Parameter *> matches;
    llvm::copy_if(trained, std::back_inserter(matches),
                  [&](const Parameter *parameter) { return pattern->matches(parameter->name); });
    if (!matches.empty())
      return matches;
    std::vector<std::string> names;
    for (const Parameter *parameter : trained)
      names.push_back(parameter->name);
    return pattern->matchesNone("trained parameter", names);
  }

  llvm::Error claim() {
    for (const ParameterGroup &group : options.groups) {
      llvm::Expected<std::vector<const Parameter *>> matches = matching("group", group.pattern);
      if (!matches)
        return matches.takeError();
      for (const Parameter *parameter : *matches)
        if (const ParameterGroup *other = groupOf.try_emplace(parameter, &group).first->second; other != &group)
          return llvm::make_error<UsageError>("--group " + other->pattern + " and --group " + group.pattern +
                                              " both claim parameter " + parameter->name);
      result.lines.push_back("group " + group.name + " (" + group.pattern + "): " + counted(*matches) +
                             settingsOf(group));
    }
    return llvm::Error::success();
  }

  static std::string counted(llvm::ArrayRef<const Parameter *> parameters) {
    int64_t elements = 0;
    for (const Parameter *parameter : parameters)
      elements += parameter->type.elements();
    return std::to_string(parameters.size()) + (parameters.size() == 1 ? " parameter, " : " parameters, ") +
           std::to_string(elements) + " elements";
  }

  static std::string settingsOf(const ParameterGroup &group) {
    std::string text;
    llvm::raw_string_ostream out(text);
    for (const auto &[name, value] : group.scalars)
      out << ", " << name << ' ' << llvm::format("%g", value);
    if (group.learningRateScale)
      out << ", lr x " << llvm::format("%g", *group.learningRateScale);
    return text;
  }

  llvm::Error findUndecayed() {
    if (options.noDecay.empty())
      return llvm::Error::success();
    std::vector<const Parameter *> matches;
    if (options.noDecay == "norms_biases")
      llvm::copy_if(trained, std::back_inserter(matches),
                    [](const Parameter *parameter) { return isNormOrBias(*parameter); });
    else if (llvm::Error error = matching("no_decay", options.noDecay).moveInto(matches))
      return error;
    undecayed.insert(matches.begin(), matches.end());
    result.lines.push_back("no weight decay: " + counted(matches));
    return llvm::Error::success();
  }

  /// Units with parameters, in the order of their first use: 0 for the first.
  void numberLayers() {
    if (!options.layerDecay)
      return;
    llvm::SmallVector<bool, 32> isLayer(module.units.size(), false);
    for (const Parameter &parameter : module.parameters)
      if (!parameter.isBuffer)
        isLayer[module.unitIndex(parameter.unit)] = true;
    for (bool counts : isLayer)
      layerOf.push_back(counts ? layers++ : -1);
    result.lines.push_back("lr decays over " + std::to_string(layers) + " layers, one for each unit");
  }

  /// The scalar itself, or the group's state in its place, which is added when it is first used.
  std::string stateFor(const Parameter &parameter, const std::string &scalar) {
    if (scalar == "weight_decay" && undecayed.contains(&parameter))
      return added(scalar, scalar + ".no_decay", 0, 0);
    std::string name = scalar;
    double value = valueOf(scalar);
    std::optional<double> factor = 1;
    if (const ParameterGroup *group = groupOf.lookup(&parameter)) {
      if (auto own = group->scalars.find(scalar); own != group->scalars.end()) {
        factor.reset();
        value = own->second;
        name += "." + group->name;
      } else if (scalar == "lr" && group->learningRateScale) {
        *factor *= *group->learningRateScale;
        value *= *group->learningRateScale;
        name += "." + group->name;
      }
    }
    if (scalar == "lr" && options.layerDecay) {
      const int32_t layer = layerOf[module.unitIndex(parameter.unit)];
      const double decay = std::pow(*options.layerDecay, layers - 1 - layer);
      if (factor)
        *factor *= decay;
      value *= decay;
      if (layer != layers - 1)
        name += ".layer" + std::to_string(layer);
    }
    return name == scalar ? name : added(scalar, name, value, factor);
  }

  double valueOf(const std::string &scalar) const {
    auto found = options.scalars.find(scalar);
    return found == options.scalars.end() ? 0 : found->second;
  }

  std::string added(const std::string &scalar, const std::string &name, double value, std::optional<double> factor) {
    if (!names.insert(name).second)
      return name;
    State state;
    state.name = name;
    state.role = StateRole::scalar;
    state.type = Type(DType::f64, {});
    state.owner = scalar;
    state.initialValue = value;
    state.factor = factor;
    result.added.push_back(std::move(state));
    return name;
  }

  const Module &module;
  llvm::ArrayRef<const Parameter *> trained;
  const OptimizerOptions &options;
  const OptimizerLayout &layout;
  llvm::DenseMap<const Parameter *, const ParameterGroup *> groupOf;
  llvm::DenseSet<const Parameter *> undecayed;
  std::vector<int32_t> layerOf; ///< by unit; -1: it has no parameters
  int32_t layers = 0;
  llvm::StringSet<> names;
  ParameterGroups result;
};

llvm::Expected<ParameterGroups> ParameterGroups::decide(const Module &module, llvm::ArrayRef<const Parameter *> trained,
                                                        const OptimizerOptions &options,
                                                        const OptimizerLayout &layout) {
  return GroupPlanner(module, trained, options, layout).run();
}

} // namespace fsdpc
