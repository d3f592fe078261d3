// One run of an emitted program between a started platform and its end.
#pragma once

#include "runtime/common/job.h"

namespace fsdpc::rt {

/// Checks everything that can be checked before memory is mapped, opens the arenas, initializes the state, then trains,
/// evaluates, predicts and saves as the options say. Collective. Throws Failure. `outDirectory`: where
/// weights/model.safetensors and model.onnx of the program lie.
void runProgram(const ProgramInfo &program, const Options &options, Platform &platform, const std::string &outDirectory,
                Pulse &pulse);

/// Throws Failure{incompatible} with the command that compiles for `worldSize` unless the program is for that many
/// ranks.
void requireWorldSize(const ProgramInfo &program, int worldSize);

} // namespace fsdpc::rt
