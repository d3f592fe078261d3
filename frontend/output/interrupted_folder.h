// Deletes the unfinished output of an interrupted compile.
#pragma once

#include <string>

namespace fsdpc {

/// From this call on, a signal that ends this process (SIGINT, SIGTERM, SIGHUP) first deletes this folder. "" deletes
/// nothing. Only one folder at a time.
void removeWhenInterrupted(const std::string &folder);

} // namespace fsdpc
