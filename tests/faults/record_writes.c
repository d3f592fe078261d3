// Records what a program does to files under RECORD_UNDER, for lost_writes.py:  LD_PRELOAD=record_writes.so RECORD_LOG=prefix
//
// Each process appends to RECORD_LOG.<pid>, one record for each operation that has succeeded:
//   <nanoseconds> <name> <bytes of data> <offset> <path>\n<data>        for rename, the data is the new path
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { mostFiles = 4096 };
static char *pathOf[mostFiles];
static FILE *records;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define BEHIND(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int isWatched(const char *path) {
  const char *under = getenv("RECORD_UNDER");
  return under && path && strncmp(path, under, strlen(under)) == 0;
}

static void record(const char *name, const char *path, long long offset, const void *data, size_t bytes) {
  struct timespec now;
  pthread_mutex_lock(&mutex);
  if (!records) {
    char file[4096];
    snprintf(file, sizeof file, "%s.%d", getenv("RECORD_LOG"), (int)getpid());
    records = fopen(file, "ab");
  }
  clock_gettime(CLOCK_MONOTONIC, &now);
  fprintf(records, "%lld %s %zu %lld %s\n", now.tv_sec * 1000000000ll + now.tv_nsec, name, bytes, offset, path);
  fwrite(data, 1, bytes, records);
  fflush(records);
  pthread_mutex_unlock(&mutex);
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
  return opened(BEHIND(open)(path, flags, mode), path, flags);
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
  const ssize_t put = BEHIND(pwrite)(file, data, bytes, offset);
  if (put > 0 && watched(file))
    record("write", watched(file), offset, data, (size_t)put);
  return put;
}
ssize_t pwrite64(int file, const void *data, size_t bytes, off_t offset) { return pwrite(file, data, bytes, offset); }

int fsync(int file) {
  const int failed = BEHIND(fsync)(file);
  if (!failed && watched(file))
    record("sync", watched(file), 0, "", 0);
  return failed;
}

int rename(const char *from, const char *to) {
  const int failed = BEHIND(rename)(from, to);
  if (!failed && isWatched(from))
    record("rename", from, 0, to, strlen(to));
  return failed;
}

int mkdir(const char *path, mode_t mode) {
  const int failed = BEHIND(mkdir)(path, mode);
  if (!failed && isWatched(path))
    record("mkdir", path, 0, "", 0);
  return failed;
}

int unlink(const char *path) {
  const int failed = BEHIND(unlink)(path);
  if (!failed && isWatched(path))
    record("remove", path, 0, "", 0);
  return failed;
}

int rmdir(const char *path) {
  const int failed = BEHIND(rmdir)(path);
  if (!failed && isWatched(path))
    record("remove", path, 0, "", 0);
  return failed;
}
