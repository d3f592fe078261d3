// The output of a run: the JSON-lines log and the progress on stderr. Both are written by rank 0 only; on other ranks
// every call does nothing.
#pragma once

#include "runtime/common/json.h"

#include <chrono>
#include <cstdio>
#include <string>

namespace fsdpc::rt {

/// One JSON object per line, flushed line by line. A line that cannot be written is no reason to end a training: the
/// first is reported on stderr, and the log ends there.
class RunLog {
public:
  /// Truncates `path`, or `continues` it on a new line. "": no log. Throws Failure{storage} if the file cannot be
  /// opened.
  RunLog(const std::string &path, int rank, bool continues = false);
  ~RunLog();
  RunLog(const RunLog &) = delete;
  RunLog &operator=(const RunLog &) = delete;

  void write(const JsonObject &line);

private:
  std::string path;
  std::FILE *file = nullptr;
};

enum class ProgressStyle : std::uint8_t { none, plain, bar };

/// `name` is a value of --progress. auto is a bar if stderr is a terminal, otherwise plain lines.
ProgressStyle progressStyle(const std::string &name, int rank);

class Progress {
public:
  Progress(ProgressStyle style, std::int64_t totalSteps) : style(style), totalSteps(totalSteps) {}

  /// Called after each step. `logged`: the step has a line in the log. The bar is redrawn at most ten times a second.
  void step(std::int64_t step, double loss, double learningRate, double stepMilliseconds, bool logged);
  /// Erases the bar so that a line can be printed.
  void clear();

private:
  void draw(std::int64_t step, double loss, double stepMilliseconds);

  ProgressStyle style;
  std::int64_t totalSteps;
  bool drawn = false;
  std::chrono::steady_clock::time_point lastDrawn{};
};

} // namespace fsdpc::rt
