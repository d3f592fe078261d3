// tests/emulated/run.py inserts this before every statement of a program that orders streams. FSDPC_DELETED=site:value
// skips the statement at that site for that event or ticket, as if it had been deleted. FSDPC_LIST=FILE lists them all.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace fsdpc::emulated {

inline bool isKept(int site, int value) {
  static const char *const deleted = std::getenv("FSDPC_DELETED");
  static const char *const list = std::getenv("FSDPC_LIST");
  static std::mutex mutex;
  static std::set<std::pair<int, int>> seen;
  if (list) {
    std::lock_guard lock(mutex);
    if (seen.insert({site, value}).second)
      if (std::FILE *file = std::fopen(list, "a")) {
        std::fprintf(file, "%d:%d\n", site, value);
        std::fclose(file);
      }
  }
  return !deleted || std::to_string(site) + ":" + std::to_string(value) != deleted;
}

} // namespace fsdpc::emulated
