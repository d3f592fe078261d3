// stdout and stderr may be closed, and their reader may exit. A compile continues nevertheless.
#pragma once

namespace fsdpc {

/// Replaces closed standard streams by /dev/null, so that no file gets their numbers and with them the printed text.
/// Must be called first.
void openStandardStreams();

/// Makes writing to a pipe without a reader, or beyond the file size limit, an error of the write, which is reported,
/// instead of a signal. Must be called after LLVM has set its handlers, which end the process.
void ignoreSignalsOfWriting();

/// Flushes stdout. Returns `code`, or 1 with a message if output could not be written. A reader that has closed the
/// pipe is no error.
int flushStandardOutput(int code);

} // namespace fsdpc
