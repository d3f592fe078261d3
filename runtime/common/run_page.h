// --report F.html: the page of `fsdpc report` for the run that goes on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::rt {

/// A line of the log, without its end.
struct LogLine {
  std::int64_t offsetBytes = 0, bytes = 0;
};

/// Of any number of lines at most `capacity`, which is even, and the newest. When it is full, every second one is left
/// out, so those that remain are evenly spread. Allocates on construction only.
class SpreadLines {
public:
  explicit SpreadLines(std::size_t capacity) : capacity(capacity) { kept.reserve(capacity); }
  void add(LogLine line);
  /// Appends the lines.
  void appendTo(std::vector<LogLine> &lines) const;
  std::int64_t stride() const { return every; } ///< one of so many is kept

private:
  std::size_t capacity;
  std::vector<LogLine> kept;
  LogLine newest;
  std::int64_t count = 0, every = 1;
};

/// One file that is replaced as a whole, so a reader always finds a complete page, whatever ends the program. Its data
/// are lines of the log, which is read only once: an update reads what was added, and the lines that the page shows. Of
/// steps and of evaluations these are at most 1000 each, of other lines the newest 200 and the last settings.
///
/// A page that cannot be written is no reason to end a training: the first time is reported on stderr, and the page
/// stays as it is. Allocates on construction only.
class RunPage {
public:
  /// `page`: "" for none, as on other ranks than 0. `log`: a file that exists; what is in it belongs to the run.
  /// `frame`: the page without data (frontend/report/run_report.h). Throws Failure{usage} if the log is no regular
  /// file, Failure{corrupt} without a frame.
  RunPage(const std::string &page, const std::string &log, const std::string &frame, int rank);
  ~RunPage();
  RunPage(const RunPage &) = delete;
  RunPage &operator=(const RunPage &) = delete;

  /// Between steps. Writes the page if it is older than a few seconds.
  void update();
  /// Writes the page for the last time. `why`: why the run ends early; "" if it has done what it was started for.
  void end(std::string_view why);

private:
  using Clock = std::chrono::steady_clock;

  /// What was added to the log, up to its last whole line.
  void readLog();
  void takePart(std::string_view part);
  void takeLine();
  void write(std::string_view state, std::string_view why);
  void put(std::string_view text);
  void putForScript(std::string_view text);
  void putLine(LogLine line);
  void flush();
  void endHere();

  std::string path, temporaryPath, name; ///< name: of the run
  std::string before, after;             ///< the page around its data
  int log = -1;                          ///< -1: no page, or no further one
  int out = -1;                          ///< the page that is being written; -1: it cannot be
  std::vector<char> input, output;
  std::size_t outputBytes = 0;
  LogLine current;         ///< the line that is being read
  std::string beginOfLine; ///< of `current`
  SpreadLines steps, evaluations;
  LogLine settings;
  std::vector<LogLine> others; ///< a ring of the newest
  std::size_t otherCount = 0;
  std::vector<LogLine> shown;
  Clock::time_point written{};
};

} // namespace fsdpc::rt
