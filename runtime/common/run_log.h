// What a run tells while it goes: the JSON-lines log and the progress on stderr. Both on rank 0 only; elsewhere every
// call is empty.
#pragma once

#include "runtime/common/json.h"

#include <chrono>
#include <cstdio>
#include <string>

namespace fsdpc::rt {

/// One JSON object per line, flushed line by line. Throws Failure{storage}.
class RunLog {
public:
  /// Starts `path` anew; "": no log.
  RunLog(const std::string &path, int rank);
  ~RunLog();
  RunLog(const RunLog &) = delete;
  RunLog &operator=(const RunLog &) = delete;

  void write(const JsonObject &line);

private:
  std::string path;
  std::FILE *file = nullptr;
};

enum class ProgressStyle : std::uint8_t { none, plain, bar };

/// `name` is a value of --progress: auto is a bar if stderr is a terminal, else plain lines.
ProgressStyle progressStyle(const std::string &name, int rank);

class Progress {
public:
  Progress(ProgressStyle style, std::int64_t totalSteps) : style(style), totalSteps(totalSteps) {}

  /// After each step; `logged`: a line of the log belongs to it. The bar is drawn at most ten times a second.
  void step(std::int64_t step, double loss, double learningRate, double stepMilliseconds, bool logged);
  /// Takes the bar away so that a line can be printed.
  void clear();

private:
  void draw(std::int64_t step, double loss, double stepMilliseconds);

  ProgressStyle style;
  std::int64_t totalSteps;
  bool drawn = false;
  std::chrono::steady_clock::time_point lastDrawn{};
};

} // namespace fsdpc::rt
