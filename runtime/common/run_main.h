#pragma once

#include <optional>

namespace fsdpc::rt {

/// One rank from start to end: reads the command line, joins the ranks, lets them agree, runs, and turns a Failure into
/// one message, the documented exit code, which is returned, and the closing line. `launched`: the rank as a launcher
/// tells it; none if the program was started alone.
int runMain(int argc, char **argv, std::optional<int> launched);

} // namespace fsdpc::rt
