#include "passes/graph/unit_plan.h"

#include "llvm/ADT/MapVector.h"

namespace fsdpc {

namespace {

/// The parameters in one module path.
struct Inside {
  std::vector<const UsedParameter *> parameters;
  bool hasSeveralModules = false;
  bool isReused = true; ///< all of them are used twice or more
};

llvm::StringMap<Inside> insideOfPaths(llvm::ArrayRef<UsedParameter> parameters) {
  llvm::StringMap<Inside> paths;
  for (const UsedParameter &parameter : parameters)
    for (llvm::StringRef path = parameter.module; !path.empty(); path = parentOf(path)) {
      Inside &inside = paths[path];
      inside.hasSeveralModules |= !inside.parameters.empty() && inside.parameters.front()->module != parameter.module;
      inside.isReused &= parameter.isNamed && parameter.uses > 1;
      inside.parameters.push_back(&parameter);
    }
  return paths;
}

} // namespace

std::vector<std::string> findReusedModules(llvm::ArrayRef<UsedParameter> parameters) {
  llvm::StringMap<Inside> paths = insideOfPaths(parameters);
  llvm::StringMap<std::string> shared; ///< path -> the longest one with the same parameters
  std::vector<std::string> modules;
  for (const UsedParameter &parameter : parameters) {
    llvm::StringRef outermost;
    for (llvm::StringRef path = parameter.module; !path.empty(); path = parentOf(path))
      if (const Inside &inside = paths[path]; inside.isReused && inside.hasSeveralModules)
        outermost = path;
    if (outermost.empty()) {
      modules.emplace_back();
      continue;
    }
    auto [entry, isNew] = shared.try_emplace(outermost);
    if (isNew)
      entry->second = commonPath(paths[outermost].parameters);
    modules.push_back(entry->second);
  }
  return modules;
}

} // namespace fsdpc
