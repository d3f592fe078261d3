// Records what a program does to files under RECORD_UNDER, for lost_writes.py:  LD_PRELOAD=record_writes.so RECORD_LOG=prefix
//
// Each process appends to RECORD_LOG.<pid>, one record for each operation that has succeeded:
//   <nanoseconds> <name> <bytes of data> <offset> <path>\n<data>        for rename, the data is the new path
// RECORD_LOG_lock is held during an operation and its record, so that the times of all processes give the order in which they acted.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { mostFiles = 4096 };
static char *pathOf[mostFiles];
static FILE *records;
static int lock = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define BEHIND(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int isWatched(const char *path) {
  const char *under = getenv("RECORD_UNDER");
  return under && path && strncmp(path, under, strlen(under)) == 0;
}

/// Keeps other threads and processes from watched operations, if this is one. Returns `isOne`.
static int hold(int isOne) {
  char file[4096];
  if (!isOne)
    return 0;
  pthread_mutex_lock(&mutex);
  if (!records) {
    snprintf(file, sizeof file, "%s_lock", getenv("RECORD_LOG"));
    lock = BEHIND(open)(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    snprintf(file, sizeof file, "%s.%d", getenv("RECORD_LOG"), (int)getpid());
    records = fopen(file, "ab");
  }
  if (flock(lock, LOCK_EX) != 0 || !records)
    abort();
  return 1;
}

/// Leaves errno as the operation set it.
static void release(int isHeld) {
  const int error = errno;
  if (isHeld) {
    flock(lock, LOCK_UN);
    pthread_mutex_unlock(&mutex);
  }
  errno = error;
}

static void record(const char *name, const char *path, long long offset, const void *data, size_t bytes) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  fprintf(records, "%lld %s %zu %lld %s\n", now.tv_sec * 1000000000ll + now.tv_nsec, name, bytes, offset, path);
  fwrite(data, 1, bytes, records);
  fflush(records);
}

static int opened(int file, const char *path, int flags) {
  if (file < 0 || file >= mostFiles || !isWatched(path))
    return file;
  free(pathOf[file]);
  pathOf[file] = strdup(path);
  if (flags & O_CREAT)
    record(flags & O_TRUNC ? "create" : "touch", path, 0, "", 0);
  return file;
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  const int held = hold(isWatched(path));
  const int file = opened(BEHIND(open)(path, flags, mode), path, flags);
  release(held);
  return file;
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int close(int file) {
  if (file >= 0 && file < mostFiles && pathOf[file]) {
    free(pathOf[file]);
    pathOf[file] = NULL;
  }
  return BEHIND(close)(file);
}

static const char *watched(int file) { return file >= 0 && file < mostFiles ? pathOf[file] : NULL; }

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) {
  const int held = hold(watched(file) != NULL);
  const ssize_t put = BEHIND(pwrite)(file, data, bytes, offset);
  if (put > 0 && held)
    record("write", watched(file), offset, data, (size_t)put);
  release(held);
  return put;
}
ssize_t pwrite64(int file, const void *data, size_t bytes, off_t offset) { return pwrite(file, data, bytes, offset); }

int fsync(int file) {
  const int held = hold(watched(file) != NULL);
  const int failed = BEHIND(fsync)(file);
  if (!failed && held)
    record("sync", watched(file), 0, "", 0);
  release(held);
  return failed;
}

int rename(const char *from, const char *to) {
  const int held = hold(isWatched(from));
  const int failed = BEHIND(rename)(from, to);
  if (!failed && held)
    record("rename", from, 0, to, strlen(to));
  release(held);
  return failed;
}

int mkdir(const char *path, mode_t mode) {
  const int held = hold(isWatched(path));
  const int failed = BEHIND(mkdir)(path, mode);
  if (!failed && held)
    record("mkdir", path, 0, "", 0);
  release(held);
  return failed;
}

int unlink(const char *path) {
  const int held = hold(isWatched(path));
  const int failed = BEHIND(unlink)(path);
  if (!failed && held)
    record("remove", path, 0, "", 0);
  release(held);
  return failed;
}

int rmdir(const char *path) {
  const int held = hold(isWatched(path));
  const int failed = BEHIND(rmdir)(path);
  if (!failed && held)
    record("remove", path, 0, "", 0);
  release(held);
  return failed;
}
