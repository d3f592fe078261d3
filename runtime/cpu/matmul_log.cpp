#include "runtime/cpu/matmul_log.h"

#include <chrono>

namespace fsdpc::rt {

void MatmulLog::start() {
  calls.clear();
  isOn = true;
}

double MatmulLog::replayMicroseconds() const {
  const auto begin = std::chrono::steady_clock::now();
  for (const RecordedMatmul &call : calls)
    call.run(call);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

MatmulLog &matmulLog() {
  static MatmulLog log;
  return log;
}

} // namespace fsdpc::rt
