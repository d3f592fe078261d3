// stdout and stderr may be closed, and their reader may go away: a compile goes on all the same.
#pragma once

namespace fsdpc {

/// First of all: a closed standard stream becomes /dev/null, so that no file gets its number and what is printed.
void openStandardStreams();

/// A pipe without a reader and a file beyond the limit are errors of the write, which are told, and no signals. After
/// LLVM has set its handlers, which end the process.
void ignoreSignalsOfWriting();

/// What is left for stdout goes out. Returns `code`, or 1 with a message where the output was wanted and could not be
/// written; a reader that went away wanted no more.
int flushStandardOutput(int code);

} // namespace fsdpc
