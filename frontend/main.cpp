#include "frontend/driver/driver.h"

#include "llvm/Support/InitLLVM.h"

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  return fsdpc::runCompiler(std::vector<std::string>(argv + 1, argv + argc));
}
