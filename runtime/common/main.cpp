// The entry point of every emitted program.

#include "runtime/common/launcher.h"
#include "runtime/common/run_main.h"

int main(int argc, char **argv) { return fsdpc::rt::runMain(argc, argv, fsdpc::rt::launcherRank()); }
