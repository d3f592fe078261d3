#include "codegen/emit.h"

#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "codegen/common/program_writer.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

namespace fsdpc {

namespace {

/// All reasons why the module cannot be printed, each once, in one message.
llvm::Error checkSupported(const Module &module, const Dialect &dialect) {
  llvm::StringMap<char> seen;
  std::string message;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Node *node : *function)
      if (std::optional<std::string> reason = unsupportedBy(dialect, *node)) {
        std::string line =
            ("the " + dialect.name() + " target cannot emit " + infoOf(*node).name + ": " + *reason).str();
        if (!node->source.empty())
          line += " (from node " + node->source + ")";
        if (seen.try_emplace(line).second)
          message += (message.empty() ? "" : "\n") + line;
      }
  for (const State &state : module.states)
    if (state.role == StateRole::buffer && !state.isFlat())
      message += (message.empty() ? "" : "\n") + ("buffers cannot be emitted yet: " + state.name);
  return message.empty() ? llvm::Error::success() : llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

} // namespace

llvm::Expected<std::vector<EmittedFile>> emitProgram(const Module &module, const EmitInfo &info,
                                                     const Dialect &dialect) {
  assert(module.stage == Stage::planned && "only a planned module has addresses");
  if (llvm::Error error = checkSupported(module, dialect))
    return error;
  ProgramText program(module, info, dialect);
  std::vector<EmittedFile> files;
  files.push_back({dialect.programFile().str(), ProgramWriter(program).write()});
  files.push_back({"program_info.cpp", programInfoText(program)});
  for (EmittedFile &file : dialect.moreFiles(program))
    files.push_back(std::move(file));
  std::string buildFile = (info.resources + "/codegen/templates/" + dialect.name() + "/CMakeLists.txt").str();
  auto text = llvm::MemoryBuffer::getFile(buildFile, /*IsText=*/true);
  if (!text)
    return llvm::createStringError(text.getError(), "cannot read " + buildFile + ": " + text.getError().message());
  files.push_back({"CMakeLists.txt", (*text)->getBuffer().str()});
  return files;
}

std::vector<std::string> runtimeFiles(llvm::StringRef resources, llvm::StringRef target) {
  std::vector<std::string> files;
  for (const std::string &folder : {std::string("runtime/common"), std::string("runtime/checkpoint"),
                                    ("runtime/" + target).str(), ("runtime/" + target + "/kernels").str()}) {
    llvm::SmallString<256> path(resources);
    llvm::sys::path::append(path, folder);
    std::error_code error;
    for (llvm::sys::fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      llvm::StringRef extension = llvm::sys::path::extension(entry->path());
      if (extension == ".h" || extension == ".cpp" || extension == ".cu")
        files.push_back((folder + "/" + llvm::sys::path::filename(entry->path())).str());
    }
  }
  llvm::sort(files);
  return files;
}

} // namespace fsdpc
