// One run of an emitted program on a started platform.
#pragma once

#include "runtime/common/job.h"

namespace fsdpc::rt {

/// Checks everything that can be checked before memory is mapped, opens the arenas, initializes the state, then trains,
/// evaluates, predicts and saves according to the options. Collective. Throws Failure. `outDirectory`: the folder with
/// weights/model.safetensors and model.onnx of the program.
void runProgram(const ProgramInfo &program, const Options &options, Platform &platform, const std::string &outDirectory,
                Pulse &pulse);

/// Unless the program is for `worldSize` ranks, throws Failure{incompatible} with the command that compiles for that
/// many.
void requireWorldSize(const ProgramInfo &program, int worldSize);

} // namespace fsdpc::rt
