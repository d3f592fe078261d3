#include "frontend/tools/checkpoint.h"

#include "frontend/output/installation.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Program.h"

namespace fsdpc {

llvm::Expected<int> runCheckpointTool(llvm::ArrayRef<std::string> arguments) {
  llvm::Expected<const Installation &> own = installation();
  if (!own)
    return own.takeError();
  llvm::SmallVector<llvm::StringRef, 8> command = {own->checkpoint};
  command.append(arguments.begin(), arguments.end());
  std::string problem;
  int code = llvm::sys::ExecuteAndWait(own->checkpoint, command, std::nullopt, {}, 0, 0, &problem);
  if (code < 0)
    return llvm::createStringError("checkpoint: " + own->checkpoint + ": " + problem);
  return code;
}

} // namespace fsdpc
