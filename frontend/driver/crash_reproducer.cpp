#include "frontend/driver/crash_reproducer.h"

#include "ir/text/text.h"
#include "llvm/Support/Signals.h"
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace fsdpc {

namespace {

constexpr int internalErrorCode = 70;
// A pass that crashed inside the allocator holds its lock, and printing then never ends.
constexpr unsigned maxSeconds = 60;

/// A signal handler can reach only globals.
struct Remembered {
  std::string path, pass;
  const Module *before = nullptr;
};
Remembered *remembered = nullptr;

void writeAll(int file, llvm::StringRef text) {
  while (!text.empty()) {
    ssize_t written = write(file, text.data(), text.size());
    if (written <= 0)
      return;
    text = text.drop_front(static_cast<size_t>(written));
  }
}

/// Runs on LLVM's signal stack, so it also works after a stack overflow.
void onFatalSignal(void *) {
  if (!remembered)
    return;
  if (!remembered->before)
    _exit(internalErrorCode);
  for (llvm::StringRef part :
       {llvm::StringRef("fsdpc: internal error: pass "), llvm::StringRef(remembered->pass), llvm::StringRef(" died\n")})
    writeAll(STDERR_FILENO, part);
  alarm(maxSeconds);
  const std::string text = toText(*remembered->before);
  int file = open(remembered->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file >= 0)
    writeAll(file, text);
  for (llvm::StringRef part :
       {llvm::StringRef("reproducer: fsdpc "), llvm::StringRef(remembered->path), llvm::StringRef(" --passes="),
        llvm::StringRef(remembered->pass), llvm::StringRef(" -o -\n")})
    writeAll(STDERR_FILENO, part);
  _exit(internalErrorCode);
}

} // namespace

CrashReproducer::CrashReproducer(std::string path) {
  remembered = new Remembered{std::move(path), "", nullptr};
  static const bool isRegistered = (llvm::sys::AddSignalHandler(onFatalSignal, nullptr), true);
  (void)isRegistered;
}

CrashReproducer::~CrashReproducer() {
  delete remembered;
  remembered = nullptr;
}

void CrashReproducer::remember(llvm::StringRef pass, const Module &before) {
  remembered->before = nullptr;
  remembered->pass = pass.str();
  remembered->before = &before;
}

void CrashReproducer::forget() { remembered->before = nullptr; }

} // namespace fsdpc
