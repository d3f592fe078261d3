// `fsdpc run MODEL.onnx [options] -n N -- train options`: compiles if needed, and launches the program.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"
#include <string>

namespace fsdpc {

/// A configuration may have `train`, options of the program, and `launch`, further arguments of the launcher.
/// `arguments`: those after `run`. `compile` gets the arguments of an ordinary compile. Returns the program's exit
/// code.
///
/// The program is launched on N ranks by srun in a Slurm job (with PMIx, where Slurm would connect the ranks by
/// nothing), else by mpirun, and directly if N is 1. SIGTERM and SIGINT reach it as SIGUSR1, so that it saves and ends
/// by itself; mpirun would kill it one second after them, and srun immediately after SIGTERM.
llvm::Expected<int> runModel(llvm::ArrayRef<std::string> arguments,
                             llvm::function_ref<llvm::Error(llvm::ArrayRef<std::string>)> compile);

} // namespace fsdpc
