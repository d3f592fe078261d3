#include "runtime/cpu/allocation_guard.h"

#if FSDPC_ALLOCATION_GUARD

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// The C library's internal names for the functions redefined below.
extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
}

namespace fsdpc::rt {
namespace {

// Nothing here may allocate: it runs inside malloc, on every thread, starting before main.
constexpr int maxOtherThreads = 64;
std::atomic<int> otherThreadCount{0};
pid_t otherThreads[maxOtherThreads];

std::atomic<bool> inStep{false};
std::atomic<StepPart> stepPart{StepPart::functions};
std::atomic<std::int64_t> stepNumber{0};
std::atomic<std::int64_t> small{0}, smallBytes{0}, mpi{0}, mpiBytes{0}, matmuls{0}, matmulBytes{0};
std::atomic<int> matmulDepth{0}; ///< over all threads, because a matmul has helper threads

enum class Thread : char { unknown, watched, other };
thread_local Thread thisThread __attribute__((tls_model("initial-exec"))) = Thread::unknown;
thread_local int mpiDepth __attribute__((tls_model("initial-exec"))) = 0;

bool isOtherThread() {
  if (thisThread == Thread::unknown) {
    const pid_t self = gettid();
    thisThread = Thread::watched;
    for (int i = 0; i < otherThreadCount.load(std::memory_order_acquire); ++i)
      if (otherThreads[i] == self)
        thisThread = Thread::other;
  }
  return thisThread == Thread::other;
}

[[noreturn]] void refuse(std::size_t bytes) {
  inStep.store(false);
  static constexpr const char *places[] = {"inside step", "while feeding the step after step", "while logging step"};
  char message[192];
  const int length = std::snprintf(message, sizeof message,
                                   "fsdpc: allocation of %zu bytes %s %lld; a step may allocate nothing of %zu "
                                   "bytes or more\n",
                                   bytes, places[static_cast<int>(stepPart.load())],
                                   static_cast<long long>(stepNumber.load()), largeAllocationBytes);
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message, static_cast<std::size_t>(length));
  std::abort();
}

void note(std::size_t bytes) {
  if (!inStep.load(std::memory_order_relaxed) || isOtherThread())
    return;
  if (mpiDepth > 0) {
    mpi.fetch_add(1, std::memory_order_relaxed);
    mpiBytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    return;
  }
  if (matmulDepth.load(std::memory_order_relaxed) > 0) {
    matmuls.fetch_add(1, std::memory_order_relaxed);
    matmulBytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    return;
  }
  if (bytes >= largeAllocationBytes)
    refuse(bytes);
  small.fetch_add(1, std::memory_order_relaxed);
  smallBytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

} // namespace

MpiScope::MpiScope() { ++mpiDepth; }
MpiScope::~MpiScope() { --mpiDepth; }

MatmulScope::MatmulScope() { ++matmulDepth; }
MatmulScope::~MatmulScope() { --matmulDepth; }

AllocationCounts stepAllocations() {
  return {small.load(), smallBytes.load(), mpi.load(), mpiBytes.load(), matmuls.load(), matmulBytes.load()};
}

void leaveOutOtherThreads() {
  DIR *tasks = opendir("/proc/self/task");
  if (!tasks)
    return;
  int count = 0;
  while (const dirent *entry = readdir(tasks)) {
    const auto id = static_cast<pid_t>(std::atoi(entry->d_name));
    if (id > 0 && id != gettid() && count < maxOtherThreads)
      otherThreads[count++] = id;
  }
  closedir(tasks);
  otherThreadCount.store(count, std::memory_order_release);
}

void leaveOutThisThread() { thisThread = Thread::other; }

void stepBegins(StepPart part) {
  for (auto *counter : {&small, &smallBytes, &mpi, &mpiBytes, &matmuls, &matmulBytes})
    counter->store(0);
  stepPart.store(part);
  if (part == StepPart::functions)
    stepNumber.fetch_add(1);
  inStep.store(true);
}

void stepEnds() {
  inStep.store(false);
  const AllocationCounts counts = stepAllocations();
  // Log lines are strings, so only the functions of a step are reported.
  if ((counts.small == 0 && counts.mpi == 0 && counts.matmuls == 0) || stepPart.load() != StepPart::functions)
    return;
  std::fprintf(stderr,
               "fsdpc: step %lld: %lld small allocations (%lld bytes), %lld by MPI (%lld bytes), %lld by oneDNN (%lld "
               "bytes)\n",
               static_cast<long long>(stepNumber.load()), static_cast<long long>(counts.small),
               static_cast<long long>(counts.smallBytes), static_cast<long long>(counts.mpi),
               static_cast<long long>(counts.mpiBytes), static_cast<long long>(counts.matmuls),
               static_cast<long long>(counts.matmulBytes));
}

} // namespace fsdpc::rt

// The standard library's operator new calls malloc, and the C library's malloc gets its pages by calls that bypass
// these hooks. So hooking the C family and mmap is enough. free and munmap need no hook: the functions below return
// memory of the C library or the kernel.
extern "C" {

void *malloc(size_t bytes) noexcept {
  fsdpc::rt::note(bytes);
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) noexcept {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total))
    total = SIZE_MAX;
  fsdpc::rt::note(total);
  return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) noexcept {
  fsdpc::rt::note(bytes);
  return __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes) noexcept {
  fsdpc::rt::note(bytes);
  return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) noexcept { return memalign(alignment, bytes); }

int posix_memalign(void **memory, size_t alignment, size_t bytes) noexcept {
  if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
    return EINVAL;
  void *result = memalign(alignment, bytes);
  if (!result)
    return ENOMEM;
  *memory = result;
  return 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  fsdpc::rt::note(bytes);
  return reinterpret_cast<void *>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off64_t offset) noexcept {
  return mmap(address, bytes, protection, flags, file, offset);
}

void *mremap(void *address, size_t oldBytes, size_t bytes, int flags, ...) noexcept {
  if (bytes > oldBytes)
    fsdpc::rt::note(bytes);
  va_list more;
  va_start(more, flags);
  void *const wanted = flags & MREMAP_FIXED ? va_arg(more, void *) : nullptr;
  va_end(more);
  return reinterpret_cast<void *>(syscall(SYS_mremap, address, oldBytes, bytes, flags, wanted));
}

} // extern "C"

#endif
