// Where fsdpc keeps what a later compile can use again.
#pragma once

#include <string>

namespace fsdpc {

/// $FSDPC_CACHE, $XDG_CACHE_HOME/fsdpc or ~/.cache/fsdpc. FSDPC_CACHE set to nothing is the empty string: nothing is
/// kept, and nothing kept is used.
std::string cacheFolder();

} // namespace fsdpc
