// The output of a run: the JSON-lines log and the progress on stderr. Both are written by rank 0 only; on other ranks
// every call does nothing.
#pragma once

#include "runtime/common/event_file.h"
#include "runtime/common/json.h"

#include <chrono>
#include <cstdio>
#include <optional>
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

/// Figures of a step or an evaluation: members of a line of the log, and scalars for TensorBoard.
class Metrics {
public:
  Metrics(EventFile &events, std::int64_t step) : events(events), step(step) { members.add("step", step); }
  Metrics &add(const char *name, double value) {
    members.add(name, value);
    events.add(name, step, value);
    return *this;
  }
  /// For the log alone.
  JsonObject &line() { return members; }

private:
  EventFile &events;
  std::int64_t step;
  JsonObject members;
};

enum class ProgressStyle : std::uint8_t { none, plain, bar };

/// `name` is a value of --progress. auto is a bar if stderr, or that of the launcher that it is a pipe to, is a
/// terminal, otherwise plain lines.
ProgressStyle progressStyle(const std::string &name, int rank);

/// What people want to see of a step. Rates are means since the last line of the log.
struct ProgressFigures {
  double loss, learningRate, stepMilliseconds;
  double perSecond;                        ///< tokens, or samples
  const char *perWhat;                     ///< "tokens" or "samples"
  std::optional<double> gradientNorm, mfu; ///< mfu: of 1
};

/// "1h02m", "3m05s", "12s"
std::string remainingText(double seconds);

class Progress {
public:
  /// `memoryBytes`: of a rank, as planned.
  Progress(ProgressStyle style, std::int64_t totalSteps, std::int64_t memoryBytes)
      : style(style), totalSteps(totalSteps), memoryBytes(memoryBytes) {}

  /// Called after each step. `logged`: the step has a line in the log. The bar is redrawn at most ten times a second.
  void step(std::int64_t step, const ProgressFigures &figures, bool logged);
  /// Erases the bar so that a line can be printed.
  void clear();

private:
  void draw(std::int64_t step, const ProgressFigures &figures);
  /// "12,345 tokens/s  MFU 41 %  1.2 GiB  ETA 3m05s"
  std::string rates(std::int64_t step, const ProgressFigures &figures) const;

  ProgressStyle style;
  std::int64_t totalSteps, memoryBytes;
  bool drawn = false;
  std::chrono::steady_clock::time_point lastDrawn{};
};

} // namespace fsdpc::rt
