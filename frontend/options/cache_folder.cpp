#include "frontend/options/cache_folder.h"

#include <cstdlib>

namespace fsdpc {

std::string cacheFolder() {
  if (const char *folder = std::getenv("FSDPC_CACHE"))
    return folder;
  if (const char *folder = std::getenv("XDG_CACHE_HOME"))
    return std::string(folder) + "/fsdpc";
  const char *home = std::getenv("HOME");
  return std::string(home ? home : "/root") + "/.cache/fsdpc";
}

} // namespace fsdpc
