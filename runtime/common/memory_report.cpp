#include "runtime/common/memory_report.h"

#include <algorithm>
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

void reportOutsidePlan(const Job &job, const char *when, std::int64_t stagingBytes) {
  OutsidePlan mine = job.platform.outsidePlan();
  std::int64_t &onHost = mine.hostBytes ? *mine.hostBytes : mine.bytes;
  onHost -= onHost < 0 ? 0 : std::min(onHost, stagingBytes);
  const bool isForPeople = job.options.memoryReport && job.context.rank == 0;
  JsonObject line;
  line.add("when", when);
  const auto add = [&](const char *key, const std::string &label, std::int64_t value) {
    const bool unknown = job.platform.maxOverRanks(value < 0) != 0;
    const std::int64_t most = job.platform.maxOverRanks(value);
    line.addRaw(key, unknown ? "null" : std::to_string(most));
    if (isForPeople && !unknown)
      std::fputs(reportLine(label + ", " + when, most).c_str(), stdout);
  };
  add("outside_plan_bytes", "outside the plan", mine.bytes);
  if (mine.hostBytes)
    add("host_outside_plan_bytes", "host, outside the plan", *mine.hostBytes);
  line.add("planned_bytes", plannedBytes(job.program));
  line.add("host_arena_bytes", arenaBytes(job.program, Space::host));
  if (const std::int64_t most = job.platform.maxOverRanks(job.platform.hostLinkBytes()); most > 0) {
    line.add("host_link_bytes", most);
    if (isForPeople)
      std::fputs(reportLine("exchange between hosts", most).c_str(), stdout);
  }
  if (const std::int64_t most = job.platform.maxOverRanks(stagingBytes); most > 0)
    line.add("checkpoint_staging_bytes", most);
  job.log.write(JsonObject().addRaw("memory", line.str()));
}

std::string growthReport(const ProgramInfo &program, std::int64_t growthBytes) {
  std::string text = "memory of all ranks\n" + reportLine("planned", plannedBytes(program) * program.worldSize);
  return growthBytes < 0 ? text : text + reportLine("resident, after training", growthBytes);
}

} // namespace fsdpc::rt
