#include "runtime/common/run_page.h"

#include "runtime/common/file.h"
#include "runtime/common/json.h"
#include "runtime/common/step_guard.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

constexpr std::size_t keptSteps = 1000, keptOthers = 200, bufferBytes = 1 << 16, longestBegin = 64;
constexpr std::chrono::seconds pageAge{5};
constexpr std::string_view mark = ">RUNS<";

int openLog(const std::string &log) {
  const int file = ::open(log.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode))
    return file;
  if (file >= 0)
    ::close(file);
  throw Failure(ExitCode::usage, "--report reads what --log writes, and " + log + " is no file that can be read");
}

std::int64_t milliseconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

} // namespace

void SpreadLines::add(LogLine line) {
  newest = line;
  if (count++ % every != 0)
    return;
  if (kept.size() == capacity) {
    for (std::size_t i = 0; i < capacity / 2; ++i)
      kept[i] = kept[2 * i];
    kept.resize(capacity / 2);
    every *= 2;
  }
  kept.push_back(line);
}

void SpreadLines::appendTo(std::vector<LogLine> &lines) const {
  lines.insert(lines.end(), kept.begin(), kept.end());
  if (!kept.empty() && kept.back().offsetBytes != newest.offsetBytes)
    lines.push_back(newest);
}

RunPage::RunPage(const std::string &page, const std::string &logPath, const std::string &frame, int rank)
    : path(page), temporaryPath(page + ".tmp-" + std::to_string(::getpid())),
      name(std::filesystem::path(logPath).stem().string()), steps(keptSteps), evaluations(keptSteps),
      others(keptOthers) {
  if (page.empty() || rank != 0)
    return;
  if (!fileExists(frame))
    throw Failure(ExitCode::corrupt, frame + ": no such file; --report fills it, and the compiler writes it");
  const std::string text = readFile(frame);
  const std::size_t at = text.find(mark);
  if (at == std::string::npos)
    throw Failure(ExitCode::corrupt, frame + ": has no place for the data of a run; compile again");
  before = text.substr(0, at + 1);
  after = text.substr(at + mark.size() - 1);
  log = openLog(logPath);
  input.resize(bufferBytes);
  output.resize(bufferBytes);
  beginOfLine.reserve(longestBegin);
  shown.reserve(2 * keptSteps + keptOthers + 3);
}

RunPage::~RunPage() {
  if (log >= 0)
    ::close(log);
}

void RunPage::update() {
  const Clock::time_point now = Clock::now();
  if (log < 0 || now - written < pageAge)
    return;
  const StepScope scope(StepPart::logging);
  written = now;
  write("running", "");
}

void RunPage::end(std::string_view why) {
  if (log >= 0)
    write(why.empty() ? "finished" : "ended", why);
}

void RunPage::readLog() {
  ssize_t got = 0;
  while ((got = ::pread(log, input.data(), input.size(), current.offsetBytes + current.bytes)) > 0) {
    std::string_view text(input.data(), static_cast<std::size_t>(got));
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      takePart(text.substr(0, end));
      takeLine();
      text.remove_prefix(end + 1);
    }
    takePart(text);
  }
}

void RunPage::takePart(std::string_view part) {
  current.bytes += static_cast<std::int64_t>(part.size());
  beginOfLine += part.substr(0, longestBegin - beginOfLine.size());
}

/// Lines are told apart by the keys they begin with: those of steps and of evaluations both have a step.
void RunPage::takeLine() {
  const std::string_view begin = beginOfLine;
  if (begin.starts_with("{\"settings\":"))
    settings = current;
  else if (begin.starts_with("{\"step\":"))
    (begin.find("\"epoch\":") == std::string_view::npos ? steps : evaluations).add(current);
  else
    others[otherCount++ % keptOthers] = current;
  current = {current.offsetBytes + current.bytes + 1, 0};
  beginOfLine.clear();
}

void RunPage::write(std::string_view state, std::string_view why) {
  readLog();
  shown.clear();
  steps.appendTo(shown);
  evaluations.appendTo(shown);
  shown.insert(shown.end(), others.begin(), others.end());
  shown.push_back(settings);
  std::sort(shown.begin(), shown.end(),
            [](const LogLine &a, const LogLine &b) { return a.offsetBytes < b.offsetBytes; });
  JsonObject first;
  first.add("run", name).add("state", state).add("why", why).add("every", steps.stride());
  first.add("written_ms", milliseconds(std::chrono::system_clock::now()));
  out = ::open(temporaryPath.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  put(before);
  putForScript(first.str());
  for (const LogLine &line : shown)
    putLine(line);
  put(after);
  flush();
  if (out < 0 || ::close(out) != 0 || ::rename(temporaryPath.c_str(), path.c_str()) != 0)
    endHere();
}

void RunPage::put(std::string_view text) {
  while (!text.empty()) {
    if (outputBytes == output.size())
      flush();
    const std::size_t bytes = std::min(text.size(), output.size() - outputBytes);
    std::copy_n(text.data(), bytes, output.data() + outputBytes);
    outputBytes += bytes;
    text.remove_prefix(bytes);
  }
}

/// JSON that cannot end the script element: `<` occurs in strings only.
void RunPage::putForScript(std::string_view text) {
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<')) {
    put(text.substr(0, at));
    put("\\u003c");
    text.remove_prefix(at + 1);
  }
  put(text);
}

/// Nothing for a line of no bytes.
void RunPage::putLine(LogLine line) {
  if (line.bytes > 0)
    put("\n");
  while (line.bytes > 0) {
    const auto wanted = std::min(static_cast<std::size_t>(line.bytes), input.size());
    const ssize_t got = ::pread(log, input.data(), wanted, line.offsetBytes);
    if (got <= 0) // the log was cut by someone else; the page leaves a line out that is not whole
      return;
    putForScript({input.data(), static_cast<std::size_t>(got)});
    line.offsetBytes += got;
    line.bytes -= got;
  }
}

void RunPage::flush() {
  for (std::size_t done = 0; done < outputBytes && out >= 0;) {
    const ssize_t put = ::write(out, output.data() + done, outputBytes - done);
    if (put < 0 && errno == EINTR)
      continue;
    if (put > 0) {
      done += static_cast<std::size_t>(put);
      continue;
    }
    const int error = errno;
    ::close(out);
    errno = error;
    out = -1;
  }
  outputBytes = 0;
}

void RunPage::endHere() {
  std::fprintf(stderr, "fsdpc: warning: %s: cannot write: %s; the page stays as it is\n", path.c_str(),
               std::strerror(errno));
  ::unlink(temporaryPath.c_str());
  ::close(log);
  log = -1;
}

} // namespace fsdpc::rt
