#include "frontend/tools/reduce.h"

#include "frontend/compilation/compilation.h"
#include "frontend/output/output_folder.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "ir/write_file.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Program.h"

namespace fsdpc {

namespace {

llvm::Expected<std::unique_ptr<Module>> copyOf(const Module &module) {
  std::string text = toText(module);
  return parse(llvm::MemoryBufferRef(text, "candidate"));
}

size_t nodesOf(const Module &module) {
  size_t count = 0;
  for (const std::unique_ptr<Function> &function : module.functions)
    count += function->size();
  return count;
}

std::string sizeText(const Module &module) {
  std::string text;
  llvm::raw_string_ostream(text) << module.functions.size() << " functions, " << nodesOf(module) << " nodes, "
                                 << module.states.size() << " states, " << toText(module).size() << " bytes";
  return text;
}

class Reducer {
public:
  Reducer(std::unique_ptr<Module> start, StillFails stillFails, llvm::raw_ostream &log)
      : current(std::move(start)), stillFails(stillFails), log(log) {}

  llvm::Expected<Reduction> run() {
    log << "start: " << sizeText(*current) << '\n';
    for (bool helped = true; helped;) {
      helped = false;
      for (const ReductionEdit &edit : reductionEdits()) {
        llvm::Expected<bool> improved = sweep(edit);
        if (!improved)
          return improved.takeError();
        if (*improved)
          log << edit.name << ": " << sizeText(*current) << '\n';
        helped |= *improved;
      }
    }
    return Reduction{std::move(current), checks};
  }

private:
  /// Tries all positions, then halves, quarters, ... of them.
  llvm::Expected<bool> sweep(const ReductionEdit &edit) {
    bool improved = false;
    for (size_t chunk = edit.count(*current); chunk > 0; chunk /= 2) {
      for (size_t begin = 0; begin < edit.count(*current);) {
        llvm::Expected<bool> kept = attempt(edit, begin, std::min(begin + chunk, edit.count(*current)));
        if (!kept)
          return kept.takeError();
        improved |= *kept;
        if (!*kept)
          begin += chunk;
      }
    }
    return improved;
  }

  /// Replaces the current module by the edited one if that is smaller, verifies and still fails.
  llvm::Expected<bool> attempt(const ReductionEdit &edit, size_t begin, size_t end) {
    llvm::Expected<std::unique_ptr<Module>> candidate = copyOf(*current);
    if (!candidate)
      return candidate.takeError();
    edit.apply(**candidate, begin, end);
    if (llvm::Error error = verify(**candidate)) {
      llvm::consumeError(std::move(error));
      return false;
    }
    removeLeftovers(**candidate);
    if (llvm::Error error = verify(**candidate)) {
      llvm::consumeError(std::move(error));
      return false;
    }
    ++checks;
    llvm::Expected<bool> fails = stillFails(**candidate);
    if (!fails || !*fails)
      return fails;
    current = std::move(*candidate);
    return true;
  }

  std::unique_ptr<Module> current;
  StillFails stillFails;
  llvm::raw_ostream &log;
  int64_t checks = 0;
};

/// CHECK as a program with arguments; the candidate's file comes last.
class CheckProgram {
public:
  static llvm::Expected<CheckProgram> find(llvm::ArrayRef<std::string> command) {
    llvm::ErrorOr<std::string> path = llvm::sys::findProgramByName(command[0]);
    if (!path)
      return llvm::createStringError("reduce: there is no program " + command[0] + " to check with");
    return CheckProgram(std::move(*path), command.vec());
  }

  /// Its exit status; an error if it could not be started.
  llvm::Expected<int> run(const Module &module) const {
    llvm::SmallString<128> file;
    int descriptor;
    if (std::error_code code = llvm::sys::fs::createTemporaryFile("fsdpc-reduce", "fsir", descriptor, file))
      return llvm::createStringError("reduce: no temporary file: " + code.message());
    llvm::FileRemover remover(file);
    if (llvm::Error error = writeFile(descriptor, file, toText(module)))
      return error;
    llvm::SmallVector<llvm::StringRef, 8> arguments(command.begin(), command.end());
    arguments.push_back(file);
    std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(""), llvm::StringRef("")};
    std::string problem;
    bool failed = false;
    int status = llvm::sys::ExecuteAndWait(path, arguments, std::nullopt, redirects, 0, 0, &problem, &failed);
    if (failed)
      return llvm::createStringError("reduce: " + command[0] + ": " + problem);
    return status;
  }

private:
  CheckProgram(std::string path, std::vector<std::string> command)
      : path(std::move(path)), command(std::move(command)) {}
  std::string path;
  std::vector<std::string> command;
};

} // namespace

llvm::Expected<Reduction> reduceModule(const Module &module, StillFails stillFails, llvm::raw_ostream &log) {
  llvm::Expected<std::unique_ptr<Module>> start = copyOf(module);
  if (!start)
    return start.takeError();
  return Reducer(std::move(*start), stillFails, log).run();
}

llvm::Error reduceFile(llvm::StringRef input, llvm::ArrayRef<std::string> check, llvm::StringRef output) {
  llvm::Expected<std::unique_ptr<Module>> module = readStage(input);
  if (!module)
    return module.takeError();
  llvm::Expected<CheckProgram> program = CheckProgram::find(check);
  if (!program)
    return program.takeError();
  llvm::Expected<int> first = program->run(**module);
  if (!first)
    return first.takeError();
  if (*first != 0)
    return llvm::createStringError("reduce: " + check[0] + " exits with " + llvm::Twine(*first) + " for " + input +
                                   " itself; it must exit with 0 while the fault is there");
  auto stillFails = [&](const Module &candidate) -> llvm::Expected<bool> {
    llvm::Expected<int> status = program->run(candidate);
    if (!status)
      return status.takeError();
    return *status == 0;
  };
  llvm::Expected<Reduction> reduction = reduceModule(**module, stillFails, llvm::errs());
  if (!reduction)
    return reduction.takeError();
  llvm::errs() << "reduced after " << reduction->checks << " checks\n";
  return writeText(output, *reduction->module);
}

} // namespace fsdpc
