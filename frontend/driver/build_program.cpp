#include "frontend/driver/output_folder.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include <cstdlib>
#include <thread>

namespace fsdpc {

namespace {

/// A finished command's fault as an error; `log` holds what it printed.
llvm::Error run(llvm::ArrayRef<std::string> command, const std::string &log) {
  llvm::SmallVector<llvm::StringRef, 32> arguments(command.begin(), command.end());
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName(command[0]);
  if (!program)
    return llvm::createStringError("host compiler " + command[0] +
                                   " not found (--emit src writes the source without it)");
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(log), llvm::StringRef(log)};
  std::string problem;
  int code = llvm::sys::ExecuteAndWait(*program, arguments, std::nullopt, redirects, 0, 0, &problem);
  if (code == 0)
    return llvm::Error::success();
  auto output = llvm::MemoryBuffer::getFile(log);
  return llvm::createStringError("the emitted program does not compile: " + llvm::join(command, " ") + "\n" + problem +
                                 (output ? (*output)->getBuffer().str() : ""));
}

void appendFlags(std::vector<std::string> &command, llvm::StringRef flags) {
  llvm::SmallVector<llvm::StringRef, 16> parts;
  flags.split(parts, '|', -1, false);
  for (llvm::StringRef part : parts)
    command.push_back(part.str());
}

} // namespace

llvm::Error buildProgram(const OutputFolder &folder, llvm::ArrayRef<std::string> sources, const BuildOptions &options) {
  std::string root = folder.workingPath().str();
  std::vector<std::string> objects;
  std::vector<std::vector<std::string>> compiles;
  for (const std::string &source : sources) {
    std::vector<std::string> command;
    if (const char *launcher = std::getenv("CMAKE_CXX_COMPILER_LAUNCHER"))
      command.push_back(launcher);
    command.push_back(FSDPC_HOST_COMPILER);
    appendFlags(command, FSDPC_PROGRAM_FLAGS);
    if (options.testBuild)
      command.push_back("-DFSDPC_TEST_BUILD");
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
  std::vector<std::string> link = {FSDPC_HOST_COMPILER, "-o", root + "/train"};
  llvm::append_range(link, objects);
  link.push_back(options.testBuild ? FSDPC_TEST_RUNTIME_LIBRARY : FSDPC_RUNTIME_LIBRARY);
  appendFlags(link, FSDPC_LINK_FLAGS);
  if (llvm::Error error = run(link, root + "/train.log"))
    return error;
  for (const std::string &object : objects)
    for (const std::string &leftover : {object, object + ".log"})
      llvm::sys::fs::remove(leftover);
  llvm::sys::fs::remove(root + "/train.log");
  return llvm::Error::success();
}

} // namespace fsdpc
