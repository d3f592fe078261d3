// The shell command that recompiles a program.
#pragma once

#include "runtime/common/program.h"

#include <string>

namespace fsdpc::rt {

/// fsdpc <OUT>/stages/graph.fsir <the compile's options> <more> -o <OUT><suffix>. OUT is the current folder of this
/// program, even if it was copied: the graph and its weights are in it. `more` overrides the options of the compile.
std::string recompileLine(const ProgramInfo &program, const std::string &more, const std::string &suffix);

/// Quotes `word` for a shell.
std::string shellQuoted(const std::string &word);

} // namespace fsdpc::rt
