// Records the matmuls of one step, to time them alone with the same primitives on the same memory (`--time_matmuls`).
//
// A replay overwrites only memory that is dead after a step: matmuls never write state. The log is not among the
// kernels, which a program may have for several processors.
#pragma once

#include "runtime/common/address.h"

#include <vector>

namespace fsdpc::rt {

struct RecordedMatmul {
  const void *product;
  void (*run)(const RecordedMatmul &call);
  const void *a, *b, *bias;
  void *out;
  Workspace workspace;
};

class MatmulLog {
public:
  /// Records matmuls from now on, until `stop`.
  void start();
  void stop() { isOn = false; }
  /// Called by every matmul.
  void note(const RecordedMatmul &call) {
    if (isOn)
      calls.push_back(call);
  }
  /// Runs the recorded matmuls again, back to back.
  double replayMicroseconds() const;

private:
  bool isOn = false;
  std::vector<RecordedMatmul> calls;
};

/// Of this process.
MatmulLog &matmulLog();

} // namespace fsdpc::rt
