#include "frontend/output/build_program.h"

#include "frontend/output/installation.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include <cstdlib>
#include <thread>

namespace fsdpc {

namespace {

/// A name with a slash is taken as it is by findProgramByName.
bool canRun(llvm::StringRef name) {
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName(name);
  return program && llvm::sys::fs::can_execute(*program);
}

/// Runs a command and returns its failure as an error. `log` is the file of its output.
llvm::Error run(llvm::ArrayRef<std::string> command, const std::string &log) {
  llvm::SmallVector<llvm::StringRef, 32> arguments(command.begin(), command.end());
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName(command[0]);
  if (!program)
    return llvm::createStringError(command[0] + ": " + program.getError().message());
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(log), llvm::StringRef(log)};
  std::string problem;
  int code = llvm::sys::ExecuteAndWait(*program, arguments, std::nullopt, redirects, 0, 0, &problem);
  if (code == 0)
    return llvm::Error::success();
  auto output = llvm::MemoryBuffer::getFile(log);
  return llvm::createStringError("the emitted program does not compile: " + llvm::join(command, " ") + "\n" + problem +
                                 (output ? (*output)->getBuffer().str() : ""));
}

llvm::Expected<const Toolchain &> toolchainFor(const BuildOptions &options) {
  llvm::Expected<const Installation &> own = installation();
  if (!own)
    return own.takeError();
  const bool isTest = options.testBuild != "off";
  auto found = own->toolchains.find(isTest ? options.target + "." + options.testBuild : options.target);
  if (found != own->toolchains.end())
    return found->second;
  if (isTest)
    return llvm::createStringError("--test_build " + options.testBuild + ": this fsdpc has no such build of --target " +
                                   options.target + "; the build tree has them all, but for those that need nvcc");
  return llvm::createStringError("this fsdpc was built without a CUDA compiler (nvcc), or for tests without a device: "
                                 "--emit src writes the source of the program, which builds where there is one");
}

/// The commands that make OUT/train. Each leaves its output in a log beside its result.
class ProgramBuild {
public:
  ProgramBuild(const Toolchain &toolchain, std::string root) : toolchain(toolchain), root(std::move(root)) {}

  llvm::Error requireCompilers() const {
    if (!launcher.empty() && !canRun(launcher))
      return llvm::createStringError("CMAKE_CXX_COMPILER_LAUNCHER is " + launcher +
                                     ", which is not found; install it, or unset the variable");
    if (!canRun(toolchain.compiler))
      return llvm::createStringError(
          "host compiler " + toolchain.compiler +
          " not found; on Debian it is in package g++ (--emit src writes the source without it)");
    return llvm::Error::success();
  }

  /// One compiler process per object: they are few.
  llvm::Error compile(llvm::ArrayRef<std::string> sources) {
    std::vector<std::vector<std::string>> commands;
    for (const std::string &source : sources)
      commands.push_back(compileCommand(source, source + ".o", toolchain.flags));
    if (!toolchain.v4Flags.empty()) {
      commands.push_back(compileCommand("program.cpp", "program.v4.o", toolchain.v4Flags));
      commands.back().push_back("-DprogramFunctions=programFunctionsV4");
    }
    std::vector<std::string> messages(commands.size());
    std::vector<std::thread> workers;
    for (size_t i = 0; i < commands.size(); ++i)
      workers.emplace_back([&, i] {
        if (llvm::Error error = run(commands[i], objects[i] + ".log"))
          messages[i] = toString(std::move(error));
      });
    for (std::thread &worker : workers)
      worker.join();
    for (const std::string &message : messages)
      if (!message.empty())
        return llvm::createStringError(message);
    return toolchain.v4Flags.empty() ? llvm::Error::success() : encloseV4();
  }

  llvm::Error link() const {
    std::vector<std::string> command = {toolchain.compiler, "-o", root + "/train"};
    llvm::append_range(command, objects);
    llvm::append_range(command, toolchain.libraries);
    llvm::append_range(command, toolchain.linkFlags);
    return run(command, root + "/train.log");
  }

  void removeLeftovers() const {
    for (const std::string &object : objects)
      for (const std::string &leftover : {object, object + ".log"})
        llvm::sys::fs::remove(leftover);
    llvm::sys::fs::remove(root + "/train.log");
  }

private:
  std::vector<std::string> compileCommand(const std::string &source, const std::string &object,
                                          llvm::ArrayRef<std::string> flags) {
    std::vector<std::string> command;
    if (!launcher.empty())
      command.push_back(launcher.str());
    command.push_back(toolchain.compiler);
    llvm::append_range(command, flags);
    objects.push_back(root + "/" + object);
    for (const std::string &argument :
         {"-I" + root, std::string("-c"), root + "/" + source, std::string("-o"), objects.back()})
      command.push_back(argument);
    return command;
  }

  /// Joins the program for v4 and its kernels, and hides all but its table. Else the linker could take an inline
  /// function of the standard library from either, and a lesser processor would meet instructions that it lacks.
  llvm::Error encloseV4() {
    const std::string object = objects.back(), joined = root + "/joined.o", log = object + ".log";
    llvm::FileRemover removeJoined(joined);
    if (llvm::Error error = run(
            {toolchain.compiler, "-r", "-Wl,--force-group-allocation", "-o", joined, object, toolchain.v4Kernels}, log))
      return error;
    return run({toolchain.objcopy, "--keep-global-symbol=_ZN5fsdpc2rt18programFunctionsV4E", joined, object}, log);
  }

  const Toolchain &toolchain;
  const std::string root;
  const llvm::StringRef launcher = std::getenv("CMAKE_CXX_COMPILER_LAUNCHER"); ///< empty: none
  std::vector<std::string> objects;
};

} // namespace

bool buildsCudaPrograms() {
  llvm::Expected<const Installation &> own = installation();
  if (!own) {
    llvm::consumeError(own.takeError());
    return false;
  }
  auto found = own->toolchains.find("cuda");
  return found != own->toolchains.end() && llvm::sys::fs::can_execute(found->second.compiler);
}

llvm::Error buildProgram(const OutputFolder &folder, llvm::ArrayRef<std::string> sources, const BuildOptions &options) {
  llvm::Expected<const Toolchain &> toolchain = toolchainFor(options);
  if (!toolchain)
    return toolchain.takeError();
  ProgramBuild build(*toolchain, folder.workingPath().str());
  if (llvm::Error error = build.requireCompilers())
    return error;
  if (llvm::Error error = build.compile(sources))
    return error;
  if (llvm::Error error = build.link())
    return error;
  build.removeLeftovers();
  return llvm::Error::success();
}

} // namespace fsdpc
