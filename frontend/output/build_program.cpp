#include "frontend/output/build_program.h"

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

/// A finished command's fault as an error; `log` holds what it printed.
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

/// Everything that differs between the ways to build a program; flags are separated by |.
struct Toolchain {
  const char *compiler, *flags, *libraries, *linkFlags;
};

llvm::Expected<Toolchain> cpuToolchain(const BuildOptions &options) {
  const bool isTest = options.testBuild == "on";
  return Toolchain{FSDPC_HOST_COMPILER, isTest ? FSDPC_PROGRAM_FLAGS "|-DFSDPC_TEST_BUILD" : FSDPC_PROGRAM_FLAGS,
                   isTest ? FSDPC_TEST_RUNTIME_LIBRARY : FSDPC_RUNTIME_LIBRARY, FSDPC_LINK_FLAGS};
}

llvm::Expected<Toolchain> cudaToolchain(const BuildOptions &options) {
  if (options.testBuild == "on")
    return Toolchain{FSDPC_HOST_COMPILER, FSDPC_EMULATED_PROGRAM_FLAGS, FSDPC_EMULATED_RUNTIME_LIBRARY,
                     FSDPC_EMULATED_LINK_FLAGS};
  if (options.testBuild == "emulated_loopback")
    return Toolchain{FSDPC_HOST_COMPILER, FSDPC_EMULATED_PROGRAM_FLAGS, FSDPC_EMULATED_LOOPBACK_LIBRARIES,
                     FSDPC_EMULATED_LINK_FLAGS};
#if defined(FSDPC_CUDA_COMPILER)
  if (options.testBuild == "loopback")
    return Toolchain{FSDPC_CUDA_COMPILER, FSDPC_CUDA_PROGRAM_FLAGS "|-DFSDPC_RANKS_ARE_THREADS",
                     FSDPC_CUDA_LOOPBACK_LIBRARIES, FSDPC_CUDA_LINK_FLAGS};
  return Toolchain{FSDPC_CUDA_COMPILER, FSDPC_CUDA_PROGRAM_FLAGS, FSDPC_CUDA_RUNTIME_LIBRARY,
                   FSDPC_CUDA_LINK_FLAGS "|" FSDPC_NCCL_LIBRARY};
#else
  return llvm::createStringError("this fsdpc was built without a CUDA compiler (nvcc): --emit src writes the source of "
                                 "the program, which builds where there is one");
#endif
}

void appendFlags(std::vector<std::string> &command, llvm::StringRef flags) {
  llvm::SmallVector<llvm::StringRef, 16> parts;
  flags.split(parts, '|', -1, false);
  for (llvm::StringRef part : parts)
    command.push_back(part.str());
}

} // namespace

bool buildsCudaPrograms() {
#if defined(FSDPC_CUDA_COMPILER)
  return llvm::sys::fs::can_execute(FSDPC_CUDA_COMPILER);
#else
  return false;
#endif
}

llvm::Error buildProgram(const OutputFolder &folder, llvm::ArrayRef<std::string> sources, const BuildOptions &options) {
  llvm::Expected<Toolchain> toolchain = options.target == "cpu" ? cpuToolchain(options) : cudaToolchain(options);
  if (!toolchain)
    return toolchain.takeError();
  const char *launcher = std::getenv("CMAKE_CXX_COMPILER_LAUNCHER");
  for (const char *name : {launcher, toolchain->compiler})
    if (name)
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
    appendFlags(command, toolchain->flags);
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
  appendFlags(link, toolchain->libraries);
  appendFlags(link, toolchain->linkFlags);
  if (llvm::Error error = run(link, root + "/train.log"))
    return error;
  for (const std::string &object : objects)
    for (const std::string &leftover : {object, object + ".log"})
      llvm::sys::fs::remove(leftover);
  llvm::sys::fs::remove(root + "/train.log");
  return llvm::Error::success();
}

} // namespace fsdpc
