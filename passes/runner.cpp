#include "passes/runner.h"

#include "ir/clone.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "ir/write_file.h"
#include "passes/pipeline.h"
#include "passes/support/clone.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include <chrono>

namespace fsdpc {

char InternalError::ID = 0;

void InternalError::log(llvm::raw_ostream &out) const {
  out << "internal error: " << message;
  if (!reproducer.empty())
    out << "\nreproducer: " << reproducer;
}

namespace {

class Runner {
public:
  Runner(Module &module, const PassContext &context, const RunnerOptions &options, std::vector<PassTime> &times)
      : module(module), context(context), options(options), times(times) {}

  llvm::Error run(const StageObserver &observer) {
    llvm::Expected<std::vector<const Pass *>> passes = selected();
    if (!passes)
      return passes.takeError();
    if (llvm::Error error = verify(module))
      return error;
    for (size_t i = firstPass(*passes); i < passes->size(); ++i) {
      const Pass *pass = (*passes)[i];
      Stage before = module.stage;
      if (pass == options.stopBefore || (options.stopAfter && pass->to > *options.stopAfter))
        break;
      if (before != pass->from || llvm::is_contained(options.skip, pass->name))
        continue;
      if (pass->to != before) {
        assignPrintedNames(module); // so that a compile from the saved stage produces the same names
        if (observer)
          observer(before, module);
      }
      if (options.only.empty())
        module.facts.lastPass = std::to_string(i) + " " + pass->name.str();
      if (llvm::Error error = runOne(*pass))
        return error;
    }
    if (observer)
      observer(module.stage, module);
    return writeIndex();
  }

private:
  /// A saved module names the last pass of the pipeline that ran on it. A hand-written one begins at the start of its
  /// stage.
  size_t firstPass(llvm::ArrayRef<const Pass *> passes) const {
    if (!options.only.empty() || module.facts.lastPass.empty())
      return 0;
    auto [number, name] = llvm::StringRef(module.facts.lastPass).split(' ');
    size_t index;
    bool known = !number.getAsInteger(10, index) && index < passes.size() && passes[index]->name == name;
    return known ? index + 1 : 0;
  }

  llvm::Expected<std::vector<const Pass *>> selected() {
    for (const std::string &name : options.skip)
      if (const Pass *pass = findPass(name); !pass)
        return llvm::createStringError("--skip " + name + ": no such pass (see --list_passes)");
      else if (!pass->optional)
        return llvm::createStringError("--skip " + name + ": the program is wrong without this pass");
    if (options.only.empty())
      return pipeline().vec();
    std::vector<const Pass *> passes;
    for (const std::string &name : options.only) {
      const Pass *pass = findPass(name);
      if (!pass)
        return llvm::createStringError("--passes " + name + ": no such pass (see --list_passes)");
      passes.push_back(pass);
    }
    return passes;
  }

  llvm::Error runOne(const Pass &pass) {
    if (llvm::is_contained(options.printBefore, pass.name))
      llvm::errs() << "// before " << pass.name << '\n' << toText(module);
    if (!options.reproducerPath.empty()) {
      std::unique_ptr<Module> copy = clone(module); // the old copy is in use until the new one is set
      if (options.beforePass)
        options.beforePass(pass.name, *copy);
      before = std::move(copy);
    }
    if (llvm::Error error = checkNeeds(pass))
      return error;
    auto begin = std::chrono::steady_clock::now();
    llvm::Error error = pass.run(module, context);
    std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    times.push_back({pass.name.str(), elapsed.count()});
    if (error)
      return error;
    if (options.printAfterAll || llvm::is_contained(options.printAfter, pass.name))
      llvm::errs() << "// after " << pass.name << '\n' << toText(module);
    if (llvm::Error invalid = verify(module))
      return reportBroken(pass, std::move(invalid));
    return dump(pass);
  }

  /// Modules written by hand may lack what the passes before this one would have made.
  llvm::Error checkNeeds(const Pass &pass) const {
    auto lacks = [&](const llvm::Twine &what) {
      return llvm::createStringError("pass " + pass.name + " needs " + what + ", which the module does not have");
    };
    for (FunctionKind kind : allFunctionKinds)
      if (pass.functions.contains(kind) && !module.function(kind))
        return lacks("the function " + nameOf(kind));
      else if (pass.added.contains(kind) && module.function(kind))
        return llvm::createStringError("pass " + pass.name + " adds the function " + nameOf(kind) +
                                       ", which the module already has");
    for (llvm::StringRef name : pass.results)
      if (!name.empty() && !resultValue(*module.function(FunctionKind::microStep), name))
        return lacks("a result '" + name + "' of micro_step");
    return llvm::Error::success();
  }

  llvm::Error reportBroken(const Pass &pass, llvm::Error invalid) {
    std::string message = "failed after " + pass.name.str() + ": " + toString(std::move(invalid));
    std::string command;
    if (llvm::Error unwritten = before ? writeFile(options.reproducerPath, toText(*before)) : llvm::Error::success())
      message += "; no reproducer: " + toString(std::move(unwritten));
    else if (before)
      command = "fsdpc " + options.reproducerPath + " --passes=" + pass.name.str() + " -o -";
    return llvm::make_error<InternalError>(std::move(message), std::move(command));
  }

  llvm::Error dump(const Pass &pass) {
    if (options.dumpDirectory.empty())
      return llvm::Error::success();
    ++number;
    std::string text = toText(module);
    bool changed = text != lastDump;
    std::string file = llvm::formatv("{0,0+2}-{1}.fsir", number, pass.name).str();
    index.push_back(llvm::json::Object{{"pass", pass.name},
                                       {"stage", nameOf(module.stage)},
                                       {"changed", changed},
                                       {"file", changed ? file : lastFile}});
    if (!changed)
      return llvm::Error::success();
    if (std::error_code code = llvm::sys::fs::create_directories(options.dumpDirectory, true, llvm::sys::fs::all_all))
      return llvm::createStringError("--dump_dir " + options.dumpDirectory + ": " + code.message());
    lastDump = std::move(text);
    lastFile = file;
    return writeFile(options.dumpDirectory + "/" + file, lastDump);
  }

  llvm::Error writeIndex() {
    if (options.dumpDirectory.empty())
      return llvm::Error::success();
    return writeFile(options.dumpDirectory + "/index.json",
                     llvm::formatv("{0:2}\n", llvm::json::Value(std::move(index))).str());
  }

  Module &module;
  const PassContext &context;
  const RunnerOptions &options;
  std::vector<PassTime> &times;
  std::unique_ptr<Module> before; ///< the input of the last pass, for the reproducer
  int number = 0;
  std::string lastDump, lastFile;
  llvm::json::Array index;
};

} // namespace

llvm::Error runPasses(Module &module, const PassContext &context, const RunnerOptions &options,
                      std::vector<PassTime> &times, const StageObserver &observer) {
  return Runner(module, context, options, times).run(observer);
}

} // namespace fsdpc
