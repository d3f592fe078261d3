// stdout and stderr may be closed, and their reader may go away: a compile goes on all the same.
#pragma once

namespace fsdpc {

/// First of all: a closed standard stream becomes /dev/null, so that no file gets its number and what is printed; a
/// pipe without a reader is no signal.
void openStandardStreams();

/// What is left for stdout goes out. Returns `code`, or 1 with a message where the output was wanted and could not be
/// written; a reader that went away wanted no more.
int flushStandardOutput(int code);

} // namespace fsdpc
