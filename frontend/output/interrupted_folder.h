// What an interrupted compile leaves behind: nothing.
#pragma once

#include <string>

namespace fsdpc {

/// A signal that ends this process (SIGINT, SIGTERM, SIGHUP) first deletes this folder, from now on; "": nothing. One
/// folder at a time.
void removeWhenInterrupted(const std::string &folder);

} // namespace fsdpc
