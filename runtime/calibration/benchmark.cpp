#include "runtime/calibration/benchmark.h"

#include "runtime/common/json.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

namespace fsdpc::rt {
namespace {

constexpr double roundMicroseconds = 3000; ///< shorter calls are timed several at a time
constexpr int rounds = 11;

/// CPU time of this thread. One thread computes without ever sleeping, and other processes on the machine should not
/// count.
double coreMicroseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// The lower quartile: other processes make some rounds slower and none faster.
double typicalOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

} // namespace

float *Benchmark::floats(std::int64_t round, std::int64_t partElements, std::int64_t offsetElements) const {
  const std::int64_t bytes = (partElements * 4 + 4095) / 4096 * 4096;
  const std::int64_t parts = std::max<std::int64_t>(1, calibrationPrivateBytes / 2 / bytes);
  return context.at<float>({Space::privateSpace, round % parts * bytes}) + offsetElements;
}

void Benchmark::compute(const char *kind, double flops, double bytes, const std::function<void(std::int64_t)> &run) {
  // Overwrites the results of the previous sample, because kernels are slow for infinities and NaN.
  std::fill_n(floats(0, 1, 0), calibrationPrivateBytes / 8, 0.5f);
  run(0); // one-time work of a library
  const double first = coreMicroseconds();
  run(1);
  auto calls = static_cast<std::int64_t>(roundMicroseconds / std::max(0.1, coreMicroseconds() - first));
  // The same number on every rank, so that all ranks are busy for the same time.
  calls = platform.maxOverRanks(std::clamp<std::int64_t>(calls, 1, 10000));
  std::vector<double> times;
  std::int64_t call = 2;
  for (int i = 0; i < rounds; ++i) {
    platform.barrier();
    const double begin = coreMicroseconds();
    for (std::int64_t j = 0; j < calls; ++j)
      run(call++);
    times.push_back((coreMicroseconds() - begin) / static_cast<double>(calls));
  }
  print(kind, flops, bytes, typicalOf(times));
}

void Benchmark::collective(const char *op, double bytes, const std::function<void(std::int64_t)> &prepare,
                           const std::function<void(std::int64_t)> &run) {
  std::vector<double> times;
  for (int i = 0; i < 2 * rounds; ++i) {
    prepare(i);
    platform.takeCommunicationTimes();
    run(i);
    times.push_back(platform.takeCommunicationTimes()->exposedMicroseconds);
  }
  times.erase(times.begin(), times.begin() + 2);
  print(op, 0, bytes, typicalOf(times));
}

void Benchmark::print(const char *kind, double flops, double bytes, double microseconds) {
  const auto nanoseconds = static_cast<std::int64_t>(microseconds * 1e3);
  const auto mean = static_cast<double>(platform.sumOverRanks(nanoseconds)) / platform.worldSize() * 1e-3;
  if (context.rank != 0)
    return;
  JsonObject line;
  line.add("kind", kind).add("flops", flops).add("bytes", bytes).add("us", mean);
  std::printf("%s\n", line.str().c_str());
}

} // namespace fsdpc::rt
