// Modules that the user asked to wrap: by class or by a pattern on their paths.
#include "ir/name_pattern.h"
#include "ir/usage_error.h"
#include "passes/graph/unit_plan.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include <set>

namespace fsdpc {

namespace {

/// The module paths of the parameter: by its name and, where that differs, by the node that reads it.
llvm::SmallVector<llvm::StringRef, 2> pathsOf(const UsedParameter &parameter) {
  llvm::SmallVector<llvm::StringRef, 2> paths;
  if (parameter.isNamed)
    paths.push_back(parameter.module);
  if (!parameter.userScope.empty())
    paths.push_back(parameter.userScope);
  return paths;
}

/// Every module that contains a parameter.
std::set<std::string> modulesAround(llvm::ArrayRef<UsedParameter> parameters) {
  std::set<std::string> modules;
  for (const UsedParameter &parameter : parameters)
    for (llvm::StringRef path : pathsOf(parameter))
      for (; !path.empty() && modules.insert(path.str()).second; path = parentOf(path))
        ;
  return modules;
}

std::vector<std::string> innermost(llvm::ArrayRef<UsedParameter> parameters, const llvm::StringSet<> &wrapped) {
  std::vector<std::string> blocks;
  for (const UsedParameter &parameter : parameters) {
    std::string &block = blocks.emplace_back();
    for (llvm::StringRef path : pathsOf(parameter))
      for (; block.empty() && !path.empty(); path = parentOf(path))
        if (wrapped.contains(path))
          block = path.str();
  }
  return blocks;
}

llvm::StringRef shortName(llvm::StringRef className) {
  size_t dot = className.rfind('.');
  return dot == llvm::StringRef::npos ? className : className.drop_front(dot + 1);
}

bool isOfClass(llvm::StringRef className, llvm::StringRef wanted) {
  return className == wanted || (className.ends_with(wanted) && className.drop_back(wanted.size()).ends_with("."));
}

/// "GPT2Block 2, LayerNorm 5": by short names, in full where two classes share one.
std::string listClasses(const std::set<std::string> &modules, const std::map<std::string, std::string> &classes) {
  std::map<std::string, int64_t> counts;
  llvm::StringMap<std::set<std::string>> sharing;
  for (const auto &[path, name] : classes)
    if (modules.contains(path)) {
      ++counts[name];
      sharing[shortName(name)].insert(name);
    }
  std::vector<std::string> entries;
  for (const auto &[name, count] : counts) {
    llvm::StringRef shown = sharing[shortName(name)].size() == 1 ? shortName(name) : llvm::StringRef(name);
    entries.push_back(shown.str() + " " + std::to_string(count));
  }
  llvm::sort(entries);
  return listed(entries);
}

} // namespace

llvm::Expected<std::vector<std::string>> findModulesOfClasses(llvm::ArrayRef<UsedParameter> parameters,
                                                              const std::map<std::string, std::string> &classes,
                                                              llvm::ArrayRef<std::string> wanted) {
  if (classes.empty())
    return llvm::createStringError(
        "--auto_wrap_policy transformer_based_wrap: the file does not say of which class its modules are (exporters "
        "that "
        "trace write no class names); use auto, or manual with a --wrap_pattern on module paths");
  std::set<std::string> modules = modulesAround(parameters);
  llvm::StringSet<> wrapped;
  for (const std::string &className : wanted) {
    bool isFound = false;
    for (const auto &[path, name] : classes)
      if (isOfClass(name, className) && modules.contains(path)) {
        wrapped.insert(path);
        isFound = true;
      }
    if (!isFound)
      return llvm::make_error<UsageError>("--transformer_cls_to_wrap " + className +
                                          ": no module with parameters is of this class; there are " +
                                          listClasses(modules, classes));
  }
  return innermost(parameters, wrapped);
}

llvm::Expected<std::vector<std::string>> findModulesByPattern(llvm::ArrayRef<UsedParameter> parameters,
                                                              llvm::StringRef text) {
  llvm::Expected<NamePattern> pattern = NamePattern::make("wrap_pattern", text);
  if (!pattern)
    return pattern.takeError();
  std::set<std::string> modules = modulesAround(parameters);
  llvm::StringSet<> wrapped;
  for (const std::string &path : modules)
    if (pattern->matches(path))
      wrapped.insert(path);
  if (wrapped.empty())
    return pattern->matchesNone("module with parameters", std::vector<std::string>(modules.begin(), modules.end()));
  return innermost(parameters, wrapped);
}

} // namespace fsdpc
