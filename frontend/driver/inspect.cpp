#include "frontend/driver/inspect.h"

#include "frontend/onnx/inspect.h"
#include "frontend/options/resolve.h"
#include "passes/graph/unit_plan.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

/// Those of assign_units, as far as they follow from the file: it sees parameters through the nodes that read them.
llvm::Expected<std::vector<Unit>> unitsOf(ImportedModel &imported, const OptionValues &values) {
  PipelineOptions options;
  if (llvm::Error error = unitOptions(values, options))
    return error;
  options.minNumParams = values.integer("min_num_params");
  std::vector<UsedParameter> used;
  for (const UseInGraph &use : parametersInOrder(imported)) {
    const Parameter &parameter = *use.parameter;
    const llvm::StringRef owner = llvm::StringRef(parameter.name).rsplit('.').first;
    const bool isNamed = owner.size() < parameter.name.size();
    used.push_back({parameter.name, parameter.type.elements(), use.scope,
                    isNamed             ? owner.str()
                    : use.scope.empty() ? parameter.name
                                        : use.scope,
                    isNamed, std::max<int64_t>(1, static_cast<int64_t>(parameter.uses.size()))});
  }
  if (used.empty())
    return std::vector<Unit>();
  llvm::Expected<UnitPlan> plan = planUnits(used, classesOf(imported), options);
  if (!plan)
    return plan.takeError();
  for (Parameter &parameter : imported.parameters)
    if (auto found = plan->ofParameter.find(parameter.name); found != plan->ofParameter.end())
      parameter.unit = plan->units[found->second].name;
  return plan->units;
}

} // namespace

llvm::Expected<ImportedModel> inspected(llvm::StringRef path, const OptionValues &values) {
  llvm::Expected<ImportOptions> options = importOptions(values);
  if (!options)
    return options.takeError();
  options->weightsMayBeAbsent = true;
  return inspectOnnx(path, *options);
}

llvm::Error inspect(llvm::StringRef path, const OptionValues &values) {
  llvm::Expected<ImportedModel> model = inspected(path, values);
  if (!model)
    return model.takeError();
  llvm::Expected<std::vector<Unit>> units = unitsOf(*model, values);
  if (!units)
    return units.takeError();
  if (values.flag("json"))
    printInspectionJson(*model, *units, llvm::outs());
  else
    printInspection(*model, *units, llvm::outs());
  return llvm::Error::success();
}

} // namespace fsdpc
