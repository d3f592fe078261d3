#include "runtime/common/run_log.h"

#include "runtime/common/failure.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

namespace {

constexpr int barWidth = 24, usualColumns = 120;

/// Whether stderr is a pipe whose reader, the launcher, shows it on a terminal.
bool isPipeToTerminal() {
  struct stat status;
  if (::fstat(STDERR_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode))
    return false;
  char target[256];
  const std::string link = "/proc/" + std::to_string(::getppid()) + "/fd/2";
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  const std::string_view name(target, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return name.substr(0, 9) == "/dev/pts/" || name.substr(0, 8) == "/dev/tty";
}

int columnsOfTerminal() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usualColumns;
}

std::string text(const char *format, double value) {
  char result[64];
  std::snprintf(result, sizeof result, format, value);
  return result;
}

/// 1234567 -> 1,234,567
std::string withCommas(double value) {
  std::string digits = text("%.0f", value);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

} // namespace

ProgressStyle progressStyle(const std::string &name, int rank) {
  if (rank != 0 || name == "none")
    return ProgressStyle::none;
  const bool terminal = ::isatty(STDERR_FILENO) == 1 || isPipeToTerminal();
  return name != "plain" && terminal ? ProgressStyle::bar : ProgressStyle::plain;
}

std::string remainingText(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::max(seconds, 0.0)));
  char result[48];
  if (whole >= 3600)
    std::snprintf(result, sizeof result, "%lldh%02lldm", whole / 3600, whole / 60 % 60);
  else if (whole >= 60)
    std::snprintf(result, sizeof result, "%lldm%02llds", whole / 60, whole % 60);
  else
    std::snprintf(result, sizeof result, "%llds", whole);
  return result;
}

std::string Progress::rates(std::int64_t step, const ProgressFigures &figures) const {
  std::string result;
  if (figures.gradientNorm)
    result += "  grad norm " + text("%.3g", *figures.gradientNorm);
  const double rate = figures.perSecond;
  result += "  " + (rate < 100 ? text("%.3g", rate) : withCommas(rate)) + " " + figures.perWhat + "/s";
  if (figures.mfu)
    result += "  MFU " + text("%.0f", 100 * *figures.mfu) + " %";
  const auto memory = static_cast<double>(memoryBytes);
  result += "  " + (memory < (1 << 30) ? text("%.0f MiB", memory / (1 << 20)) : text("%.2f GiB", memory / (1 << 30)));
  if (step < totalSteps)
    result += "  ETA " + remainingText(static_cast<double>(totalSteps - step) * figures.stepMilliseconds * 1e-3);
  return result;
}

void Progress::step(std::int64_t step, const ProgressFigures &figures, bool logged) {
  if (style == ProgressStyle::plain && logged)
    std::fprintf(stderr, "step %lld/%lld  loss %.6g  lr %.4g  %.1f ms%s\n", static_cast<long long>(step),
                 static_cast<long long>(totalSteps), figures.loss, figures.learningRate, figures.stepMilliseconds,
                 rates(step, figures).c_str());
  if (style != ProgressStyle::bar)
    return;
  const auto now = std::chrono::steady_clock::now();
  if (step != totalSteps && now - lastDrawn < std::chrono::milliseconds(100))
    return;
  lastDrawn = now;
  draw(step, figures);
}

void Progress::draw(std::int64_t step, const ProgressFigures &figures) {
  const auto filled = static_cast<std::size_t>(totalSteps > 0 ? barWidth * step / totalSteps : barWidth);
  std::string line = "[" + std::string(filled, '#') + std::string(barWidth - filled, '.') + "] " +
                     std::to_string(step) + "/" + std::to_string(totalSteps) + text("  loss %.4g", figures.loss) +
                     text("  %.1f ms", figures.stepMilliseconds) + rates(step, figures);
  line.resize(std::min(line.size(), static_cast<std::size_t>(columnsOfTerminal() - 1)));
  drawn = step != totalSteps;
  std::fprintf(stderr, "\r%s\033[K%s", line.c_str(), drawn ? "" : "\n");
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
