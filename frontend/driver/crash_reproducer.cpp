#include "frontend/driver/crash_reproducer.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace fsdpc {

namespace {

constexpr int internalErrorCode = 70;
constexpr int fatalSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// A signal handler reaches nothing but globals; it may only call what is async-signal-safe.
struct Remembered {
  std::string path, pass, text;
};
Remembered *remembered = nullptr;

void writeAll(int file, const std::string &text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written <= 0)
      return;
    done += static_cast<size_t>(written);
  }
}

void onFatalSignal(int) {
  if (!remembered || remembered->pass.empty())
    _exit(internalErrorCode);
  int file = open(remembered->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file >= 0)
    writeAll(file, remembered->text);
  static const char *const parts[] = {"fsdpc: internal error: pass ", " died\nreproducer: fsdpc ",
                                      " --passes=", " -o -\n"};
  const std::string *values[] = {&remembered->pass, &remembered->path, &remembered->pass};
  for (size_t i = 0; i < std::size(parts); ++i) {
    (void)!write(STDERR_FILENO, parts[i], std::strlen(parts[i]));
    if (i < std::size(values))
      writeAll(STDERR_FILENO, *values[i]);
  }
  _exit(internalErrorCode);
}

} // namespace

CrashReproducer::CrashReproducer(std::string path) {
  remembered = new Remembered{std::move(path), "", ""};
  for (int number : fatalSignals)
    std::signal(number, onFatalSignal);
}

CrashReproducer::~CrashReproducer() {
  for (int number : fatalSignals)
    std::signal(number, SIG_DFL);
  delete remembered;
  remembered = nullptr;
}

void CrashReproducer::remember(llvm::StringRef pass, const std::string &textBefore) {
  remembered->pass.clear();
  remembered->text = textBefore;
  remembered->pass = pass.str();
}

} // namespace fsdpc
