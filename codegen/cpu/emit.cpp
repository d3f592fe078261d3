#include "codegen/emit.h"

#include "codegen/cpu/emitters.h"
#include "codegen/cpu/program_text.h"
#include "codegen/cpu/program_writer.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

namespace fsdpc {

namespace {

/// All reasons why the module cannot be printed, each once, in one message.
llvm::Error checkSupported(const Module &module) {
  llvm::StringMap<char> seen;
  std::string message;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Node *node : *function)
      if (std::optional<std::string> reason = unsupportedOnCpu(*node)) {
        std::string line = ("the cpu target cannot emit " + infoOf(*node).name + ": " + *reason).str();
        if (!node->source.empty())
          line += " (from node " + node->source + ")";
        if (seen.try_emplace(line).second)
          message += (message.empty() ? "" : "\n") + line;
      }
  for (const State &state : module.states)
    if (state.role == StateRole::buffer)
      message += (message.empty() ? "" : "\n") + ("the cpu target has no buffers yet: " + state.name);
  return message.empty() ? llvm::Error::success() : llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

} // namespace

llvm::Expected<std::vector<EmittedFile>> emitCpu(const Module &module, const EmitInfo &info) {
  assert(module.stage == Stage::planned && "only a planned module has addresses");
  if (llvm::Error error = checkSupported(module))
    return error;
  ProgramText program(module, info);
  std::vector<EmittedFile> files;
  files.push_back({"program.cpp", ProgramWriter(program).write()});
  files.push_back({"program_info.cpp", programInfoText(program)});
  if (std::string constants = constantsText(program); !constants.empty())
    files.push_back({"constants.cpp", std::move(constants)});
  std::string buildFile = std::string(FSDPC_SOURCE_DIR) + "/codegen/templates/cpu/CMakeLists.txt";
  auto text = llvm::MemoryBuffer::getFile(buildFile, /*IsText=*/true);
  if (!text)
    return llvm::createStringError(text.getError(), "cannot read " + buildFile + ": " + text.getError().message());
  files.push_back({"CMakeLists.txt", (*text)->getBuffer().str()});
  return files;
}

std::vector<std::string> runtimeFilesCpu(llvm::StringRef sourceTree) {
  std::vector<std::string> files;
  for (const char *folder : {"runtime/common", "runtime/cpu", "runtime/cpu/kernels"}) {
    llvm::SmallString<256> path(sourceTree);
    llvm::sys::path::append(path, folder);
    std::error_code error;
    for (llvm::sys::fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      llvm::StringRef name = llvm::sys::path::filename(entry->path());
      if (name.ends_with(".h") || name.ends_with(".cpp"))
        files.push_back((folder + ("/" + name)).str());
    }
  }
  llvm::sort(files);
  return files;
}

} // namespace fsdpc
