#include "runtime/common/recompile_line.h"

#include "runtime/common/file.h"

namespace fsdpc::rt {

std::string shellQuoted(const std::string &word) {
  const char *const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos)
    return word;
  std::string quoted = "'";
  for (const char c : word)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string recompileLine(const ProgramInfo &program, const std::string &more, const std::string &suffix) {
  const std::string folder = executableDirectory();
  return "fsdpc " + shellQuoted(folder + "/stages/graph.fsir") + " " + program.compileCommand +
         (program.compileCommand[0] ? " " : "") + more + " -o " + shellQuoted(folder + suffix);
}

} // namespace fsdpc::rt
