#include "runtime/common/crash_report.h"

#include "runtime/common/failure.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

std::atomic<Pulse *> reported{nullptr};
alignas(64) std::byte handlerStack[64 << 10];

/// Text that a signal handler can assemble: no memory is allocated, no lock is taken.
class Line {
public:
  Line &operator<<(const char *text) {
    while (*text && length_ < sizeof text_)
      text_[length_++] = *text++;
    return *this;
  }
  Line &operator<<(std::int64_t value) {
    char digits[24] = {};
    char *first = digits + sizeof digits - 1;
    do
      *--first = static_cast<char>('0' + value % 10);
    while ((value /= 10) > 0);
    return *this << first;
  }
  void write() const { [[maybe_unused]] const auto put = ::write(STDERR_FILENO, text_, length_); }

private:
  char text_[512];
  std::size_t length_ = 0;
};

const char *reasonOf(int number) {
  switch (number) {
  case SIGILL:
    return "this processor lacks an instruction that the program was built with; build it on this host: cmake -S OUT "
           "-B OUT/build && "
           "cmake --build OUT/build";
  case SIGBUS: return "memory of a file is gone, or the host has none left (SIGBUS)";
  case SIGFPE: return "a bug in this program: SIGFPE";
  default: return "a bug in this program: it used memory that it does not have (SIGSEGV)";
  }
}

void onFault(int number) {
  Pulse *pulse = reported.exchange(nullptr);
  const bool isIllegal = number == SIGILL;
  if (pulse) {
    Line line;
    line << "fsdpc: error: " << reasonOf(number)
         << "\nfsdpc: exit=" << (isIllegal ? static_cast<std::int64_t>(ExitCode::incompatible) : 128 + number)
         << " rank=" << static_cast<std::int64_t>(pulse->rank());
    if (const std::int64_t step = pulse->line().step.load(std::memory_order_relaxed); step > 0)
      line << " step=" << step;
    (line << "\n").write();
  }
  if (isIllegal)
    _exit(static_cast<int>(ExitCode::incompatible));
  // The handler is gone (SA_RESETHAND): the fault happens again when this returns, and takes its usual course.
  ::raise(number);
}

} // namespace

CrashReport::CrashReport(Pulse &pulse) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  reported = &pulse;
  stack_t stack{};
  stack.ss_sp = handlerStack;
  stack.ss_size = sizeof handlerStack;
  ::sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_handler = onFault;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  for (const int number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE})
    ::sigaction(number, &action, nullptr);
#else
  static_cast<void>(pulse);
#endif
}

CrashReport::~CrashReport() { reported = nullptr; }

} // namespace fsdpc::rt
