#pragma once

#include <optional>

namespace fsdpc::rt {

/// Runs one rank from start to end: parses the command line, joins the ranks, compares them, and runs the program.
/// Turns a Failure into one message, the closing line and the documented exit code, which it returns. `launched`: the
/// rank as given by a launcher; nullopt if the program was started alone.
int runMain(int argc, char **argv, std::optional<int> launched);

} // namespace fsdpc::rt
