#pragma once

namespace fsdpc::rt {

/// First of all: a closed standard stream becomes /dev/null, so that no file gets its number and what is printed; a
/// pipe whose reader went away is no signal: training goes on.
void openStandardStreams();

} // namespace fsdpc::rt
