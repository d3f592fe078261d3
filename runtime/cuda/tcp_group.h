// A HostGroup over TCP: every rank has a connection to rank 0, which collects and answers.
#pragma once

#include "runtime/cuda/host_group.h"
#include "runtime/cuda/launch_environment.h"

namespace fsdpc::rt {

/// Returns when all ranks have joined. Throws Failure{device} if they have not within `timeoutSeconds`, naming where
/// they were to meet. A job of one rank opens nothing.
std::unique_ptr<HostGroup> joinOverTcp(const LaunchEnvironment &environment, double timeoutSeconds);

} // namespace fsdpc::rt
