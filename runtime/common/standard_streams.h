#pragma once

namespace fsdpc::rt {

/// Called first. Opens /dev/null for a closed standard stream, so that no file gets its descriptor and receives printed
/// text. Ignores the signal of a pipe without a reader, so that training continues.
void openStandardStreams();

} // namespace fsdpc::rt
