#include "runtime/common/run_log.h"

#include "runtime/common/failure.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace fsdpc::rt {

RunLog::RunLog(const std::string &path, int rank, bool continues) : path(path) {
  if (path.empty() || rank != 0)
    return;
  file = std::fopen(path.c_str(), continues ? "a+e" : "we");
  if (!file)
    throw Failure(ExitCode::storage, path + ": cannot create: " + std::strerror(errno));
  // A run that was killed may have left half a line.
  if (continues && std::fseek(file, -1, SEEK_END) == 0 && std::fgetc(file) != '\n')
    std::fputc('\n', file);
}

RunLog::~RunLog() {
  if (file)
    std::fclose(file);
}

void RunLog::write(const JsonObject &line) {
  if (!file)
    return;
  const std::string text = line.str() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0)
    return;
  std::fprintf(stderr, "fsdpc: warning: %s: cannot write: %s; the log ends here\n", path.c_str(), std::strerror(errno));
  std::fclose(file);
  file = nullptr;
}

ProgressStyle progressStyle(const std::string &name, int rank) {
  if (rank != 0 || name == "none")
    return ProgressStyle::none;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return name != "plain" && terminal ? ProgressStyle::bar : ProgressStyle::plain;
}

void Progress::step(std::int64_t step, double loss, double learningRate, double stepMilliseconds, bool logged) {
  if (style == ProgressStyle::plain && logged)
    std::fprintf(stderr, "step %lld/%lld  loss %.6g  lr %.4g  %.1f ms\n", static_cast<long long>(step),
                 static_cast<long long>(totalSteps), loss, learningRate, stepMilliseconds);
  if (style != ProgressStyle::bar)
    return;
  const auto now = std::chrono::steady_clock::now();
  if (step != totalSteps && now - lastDrawn < std::chrono::milliseconds(100))
    return;
  lastDrawn = now;
  draw(step, loss, stepMilliseconds);
}

void Progress::draw(std::int64_t step, double loss, double stepMilliseconds) {
  static constexpr int width = 30;
  char bar[width + 1];
  const auto filled = totalSteps > 0 ? static_cast<int>(width * step / totalSteps) : width;
  for (int i = 0; i < width; ++i)
    bar[i] = i < filled ? '#' : '.';
  bar[width] = '\0';
  std::fprintf(stderr, "\r[%s] %lld/%lld  loss %.4g  %.1f ms\033[K", bar, static_cast<long long>(step),
               static_cast<long long>(totalSteps), loss, stepMilliseconds);
  drawn = step != totalSteps;
  if (!drawn)
    std::fputc('\n', stderr);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn)
    return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn = false;
}

} // namespace fsdpc::rt
