// A wall clock that someone sets:  LD_PRELOAD=jumping_clock.so
//
// Every tenth reading is an hour before or after the one before. Clocks that only count the time since the machine started are right.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define BEHIND(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long long offsetSeconds(void) {
  static atomic_llong readings;
  const long long jumps = atomic_fetch_add(&readings, 1) / 10;
  return jumps % 3 == 0 ? 0 : jumps % 3 == 1 ? 3600 : -3600;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  const int failed = BEHIND(clock_gettime)(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += offsetSeconds();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  const int failed = BEHIND(gettimeofday)(now, zone);
  if (!failed)
    now->tv_sec += offsetSeconds();
  return failed;
}

time_t time(time_t *to) {
  const time_t now = BEHIND(time)(NULL) + offsetSeconds();
  if (to)
    *to = now;
  return now;
}
