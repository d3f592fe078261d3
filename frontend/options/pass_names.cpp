// Checks that the passes named on the command line exist and run.
#include "frontend/options/resolve.h"
#include "passes/pipeline.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

llvm::Expected<const Pass *> passOf(llvm::StringRef option, std::string &name) {
  std::string spelled = llvm::StringRef(name).lower();
  std::replace(spelled.begin(), spelled.end(), '-', '_');
  if (const Pass *pass = findPass(spelled)) {
    name = spelled;
    return pass;
  }
  llvm::SmallVector<llvm::StringRef, 64> names;
  for (const Pass *pass : pipeline())
    names.push_back(pass->name);
  return usage("--" + option + " " + name + ": no such pass, see --list_passes" + didYouMean(spelled, names));
}

/// Checks that each pass of --passes gets the module at the stage that it works on.
llvm::Error checkOrder(llvm::ArrayRef<std::string> names, Stage stage) {
  for (const std::string &name : names) {
    const Pass *pass = findPass(name);
    if (pass->from != stage)
      return usage("--passes " + name + ": works on the stage " + nameOf(pass->from) +
                   ", and the module is at the stage " + nameOf(stage) + " here");
    stage = pass->to;
  }
  return llvm::Error::success();
}

/// Why the runner skips this pass, "" if it runs.
std::string whyNotRun(const Pass &pass, const RunnerOptions &options, Stage stage) {
  if (!options.only.empty())
    return llvm::is_contained(options.only, pass.name) ? "" : "--passes leaves it out";
  if (llvm::is_contained(options.skip, pass.name))
    return "--skip leaves it out";
  if (pass.from < stage)
    return ("the module is at the stage " + nameOf(stage) + " already").str();
  if (options.stopAfter && pass.to > *options.stopAfter)
    return ("--compile_to " + nameOf(*options.stopAfter) + " ends before it").str();
  return "";
}

} // namespace

llvm::Error checkPassNames(RunnerOptions &options, const Module &module) {
  const std::pair<llvm::StringRef, std::vector<std::string> *> lists[] = {{"passes", &options.only},
                                                                          {"skip", &options.skip},
                                                                          {"print_ir_before", &options.printBefore},
                                                                          {"print_ir_after", &options.printAfter}};
  for (const auto &[option, names] : lists)
    for (std::string &name : *names) {
      llvm::Expected<const Pass *> pass = passOf(option, name);
      if (!pass)
        return pass.takeError();
      if (option == "skip" && !(*pass)->optional)
        return usage("--skip " + name + ": the program is wrong without this pass");
      if (!option.starts_with("print_ir"))
        continue;
      if (std::string why = whyNotRun(**pass, options, module.stage); !why.empty())
        return usage("--" + option + " " + name + ": this pass does not run: " + why);
    }
  return checkOrder(options.only, module.stage);
}

} // namespace fsdpc
