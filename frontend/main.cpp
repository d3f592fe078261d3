#include "frontend/driver/driver.h"
#include "frontend/driver/standard_streams.h"

#include "llvm/Support/InitLLVM.h"

int main(int argc, char **argv) {
  fsdpc::openStandardStreams();
  llvm::InitLLVM init(argc, argv, /*InstallPipeSignalExitHandler=*/false);
  fsdpc::ignoreSignalsOfWriting();
  const int code = fsdpc::runCompiler(std::vector<std::string>(argv + 1, argv + argc));
  return fsdpc::flushStandardOutput(code);
}
