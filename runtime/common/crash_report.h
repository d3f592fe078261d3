// The closing line of a process that a fault ends: an instruction that the processor lacks, a bad address, memory of a
// file that is gone.
#pragma once

#include "runtime/common/heartbeat.h"

namespace fsdpc::rt {

/// While one exists, SIGILL, SIGSEGV, SIGBUS and SIGFPE of this process write a message and the closing line, which
/// names rank and step as `pulse` knows them. SIGILL then is exit code 3: the program was built for another processor.
/// The others end the process as they would without this, with a core dump where that is enabled. Sanitizers keep their
/// own handlers.
class CrashReport {
public:
  explicit CrashReport(Pulse &pulse);
  ~CrashReport();
  CrashReport(const CrashReport &) = delete;
  CrashReport &operator=(const CrashReport &) = delete;
};

} // namespace fsdpc::rt
