#include "frontend/output/build_program.h"

#include "frontend/output/installation.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include <cstdlib>
#include <thread>

namespace fsdpc {

namespace {

/// A name with a slash is taken as it is by findProgramByName.
llvm::Error requireCompiler(llvm::StringRef name) {
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName(name);
  if (program && llvm::sys::fs::can_execute(*program))
    return llvm::Error::success();
  return llvm::createStringError("host compiler " + name + " not found (--emit src writes the source without it)");
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
  return llvm::createStringError("this fsdpc was built without a CUDA compiler (nvcc): --emit src writes the source of "
                                 "the program, which builds where there is one");
}

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
  const char *launcher = std::getenv("CMAKE_CXX_COMPILER_LAUNCHER");
  for (llvm::StringRef name : {llvm::StringRef(launcher ? launcher : ""), llvm::StringRef(toolchain->compiler)})
    if (!name.empty())
      if (llvm::Error error = requireCompiler(name))
        return error;
  std::string root = folder.workingPath().str();
  std::vector<std::string> objects;
  std::vector<std::vector<std::string>> compiles;
  for (const std::string &source : sources) {
    std::vector<std::string> command;
    if (launcher)
      command.push_back(launcher);
    command.push_back(toolchain->compiler);
    llvm::append_range(command, toolchain->flags);
    objects.push_back(root + "/" + source + ".o");
    for (const std::string &argument :
         {std::string("-I") + root, std::string("-c"), root + "/" + source, std::string("-o"), objects.back()})
      command.push_back(argument);
    compiles.push_back(std::move(command));
  }
  // One compiler process per source file: they are few.
  std::vector<std::string> messages(compiles.size());
  std::vector<std::thread> workers;
  for (size_t i = 0; i < compiles.size(); ++i)
    workers.emplace_back([&, i] {
      if (llvm::Error error = run(compiles[i], objects[i] + ".log"))
        messages[i] = toString(std::move(error));
    });
  for (std::thread &worker : workers)
    worker.join();
  for (const std::string &message : messages)
    if (!message.empty())
      return llvm::createStringError(message);
  std::vector<std::string> link = {toolchain->compiler, "-o", root + "/train"};
  llvm::append_range(link, objects);
  llvm::append_range(link, toolchain->libraries);
  llvm::append_range(link, toolchain->linkFlags);
  if (llvm::Error error = run(link, root + "/train.log"))
    return error;
  for (const std::string &object : objects)
    for (const std::string &leftover : {object, object + ".log"})
      llvm::sys::fs::remove(leftover);
  llvm::sys::fs::remove(root + "/train.log");
  return llvm::Error::success();
}

} // namespace fsdpc
