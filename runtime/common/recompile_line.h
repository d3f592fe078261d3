// The command that compiles a program again, as a shell takes it.
#pragma once

#include "runtime/common/program.h"

#include <string>

namespace fsdpc::rt {

/// fsdpc <OUT>/stages/graph.fsir <the compile's options> <more> -o <OUT><suffix>, with OUT the folder of this program,
/// wherever it was copied to: the graph is there with its weights beside it. `more` counts where the compile said
/// something else.
std::string recompileLine(const ProgramInfo &program, const std::string &more, const std::string &suffix);

/// One word of a shell.
std::string shellQuoted(const std::string &word);

} // namespace fsdpc::rt
