// The only exception type of the runtime: an exit code and one message for the user.
//
// `main` catches it, prints the message and the closing line `fsdpc: exit=<code> rank=<r> ...`, and exits with the
// code.
#pragma once

#include <stdexcept>
#include <string>

namespace fsdpc::rt {

/// The documented exit codes of an emitted program.
enum class ExitCode : int {
  usage = 2,        ///< unknown option or value, an option that is compiled in
  incompatible = 3, ///< another world size; weights that do not fit the program
  corrupt = 4,      ///< data, weights: wrong header, short file, label or token out of range
  disagreement = 5, ///< ranks disagree
  timeout = 6,      ///< a collective did not complete
  nonFinite = 7,    ///< loss is NaN or infinite
  storage = 8,      ///< a file cannot be written
  memory = 9,       ///< an arena cannot be mapped or backed
  device = 10,      ///< no usable device
  internal = 70,    ///< a bug in this program
  stopped = 75,     ///< a signal or --max_runtime, after saving
};

/// `everyRank`: every rank fails at the same point, so the ranks end together and only `reportingRank` prints.
/// Otherwise the failure may have happened on this rank alone, which prints and stops the others.
class Failure : public std::runtime_error {
public:
  Failure(ExitCode code, const std::string &message, bool everyRank = false)
      : std::runtime_error(message), code(code), everyRank(everyRank) {}
  ExitCode code;
  bool everyRank;
  int reportingRank = 0;
  std::string details; ///< `key=value ...` for the closing line, e.g. "unit=layers.3 seq=118 op=reduce_scatter"
};

} // namespace fsdpc::rt
