#include "runtime/common/memory_report.h"

#include <cstdio>

namespace fsdpc::rt {

static std::string reportLine(const std::string &label, std::int64_t bytes) {
  char line[160];
  std::snprintf(line, sizeof line, "  %-28.80s %16lld  %10.2f MiB\n", label.c_str(), static_cast<long long>(bytes),
                static_cast<double>(bytes) / (1 << 20));
  return line;
}

std::int64_t plannedBytes(const ProgramInfo &program) {
  std::int64_t bytes = 0;
  for (const ArenaInfo &arena : program.arenas)
    bytes += arena.space == Space::host ? 0 : arena.bytes;
  return bytes;
}

std::string memoryReport(const ProgramInfo &program, std::int64_t mappedBytes) {
  std::string text = "memory of one rank: planned bytes at the peak, by class\n";
  std::int64_t live = 0;
  for (const MemoryClassBytes &entry : program.memoryClasses) {
    text += reportLine(entry.name, entry.bytes);
    live += entry.bytes;
  }
  text += reportLine("live at the peak", live) + "arenas\n";
  for (const ArenaInfo &arena : program.arenas) {
    static constexpr const char *names[] = {"private", "window", "host"};
    const std::string name = names[static_cast<int>(arena.space)];
    text += reportLine(name + ", planned", arena.bytes);
    text += reportLine(name + ", highest byte used", arena.usedBytes);
  }
  return text + reportLine("planned in all", plannedBytes(program)) + reportLine("mapped", mappedBytes);
}

std::string growthReport(const ProgramInfo &program, std::int64_t growthBytes) {
  std::string text = "memory of all ranks\n" + reportLine("planned", plannedBytes(program) * program.worldSize);
  return growthBytes < 0 ? text : text + reportLine("resident, after training", growthBytes);
}

} // namespace fsdpc::rt
