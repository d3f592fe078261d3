#include "runtime/common/trace_file.h"

#include "runtime/common/json.h"

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

constexpr const char *folder = "comm_traces";

/// A file with its own small buffer. The streams of the C and C++ libraries allocate theirs.
class PlainFile {
public:
  explicit PlainFile(const std::string &path)
      : descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  ~PlainFile() { close(); }
  PlainFile(const PlainFile &) = delete;
  PlainFile &operator=(const PlainFile &) = delete;

  void write(const std::string &text) {
    for (const char c : text) {
      if (filled == sizeof buffer)
        flush();
      buffer[filled++] = c;
    }
  }
  /// Returns whether everything was written.
  bool close() {
    if (descriptor < 0)
      return false;
    flush();
    good = ::close(descriptor) == 0 && good;
    descriptor = -1;
    return good;
  }

private:
  void flush() {
    for (std::size_t done = 0; good && done < filled;) {
      const ssize_t put = ::write(descriptor, buffer + done, filled - done);
      good = put > 0;
      done += good ? static_cast<std::size_t>(put) : 0;
    }
    filled = 0;
  }

  int descriptor;
  bool good = true;
  std::size_t filled = 0;
  char buffer[2048];
};

std::string milliseconds(std::int64_t nanoseconds) {
  return jsonNumber(static_cast<double>(nanoseconds / 1000) * 1e-3);
}

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// Times are milliseconds before now; null: not reached yet.
std::string rankText(Pulse &pulse, int rank, std::int64_t now) {
  const Heartbeat *line = pulse.lineOf(rank);
  JsonObject object;
  object.add("rank", rank).add("seen", line && line->isSeen());
  if (line && line->isSeen()) {
    object.addRaw("alive_ms_ago", milliseconds(now - line->aliveNanoseconds.load()));
    object.addRaw("progress_ms_ago", milliseconds(now - line->progressNanoseconds.load()));
    object.add("phase", nameOf(line->phase.load())).add("step", line->step.load());
    object.add("arrivals", line->arrivals.load()).add("seq", static_cast<std::int64_t>(line->sequence.load()));
  }
  return object.str();
}

std::string recordText(const TracedCollective &record, std::int64_t now) {
  const auto moment = [&](std::int64_t nanoseconds) { return nanoseconds ? milliseconds(now - nanoseconds) : "null"; };
  JsonObject object;
  object.add("seq", static_cast<std::int64_t>(record.sequence)).add("op", record.op).add("unit", record.unit);
  object.add("id", record.name).add("bytes", record.bytes).add("state", record.state());
  object.addRaw("started_ms_ago", moment(record.startedNanoseconds));
  object.addRaw("begun_ms_ago", moment(record.begunNanoseconds)).addRaw("done_ms_ago", moment(record.doneNanoseconds));
  object.addRaw("waited_ms_ago", moment(record.waitedNanoseconds));
  if (record.fingerprint)
    object.add("fingerprint", hex(record.fingerprint));
  if (record.operandHash || record.resultHash)
    object.add("operand_hash", hex(record.operandHash)).add("result_hash", hex(record.resultHash));
  return object.str();
}

std::string headText(Pulse &pulse, const Failure *failure) {
  JsonObject head;
  head.add("schema", "fsdpc.comm_trace/1").add("rank", pulse.rank()).add("world_size", pulse.worldSize());
  head.add("exit", failure ? static_cast<int>(failure->code) : 0);
  if (failure)
    head.add("message", failure->what()).add("details", failure->details);
  head.add("unix_time", static_cast<std::int64_t>(std::time(nullptr)));
  head.add("phase", nameOf(pulse.line().phase.load())).add("step", pulse.line().step.load());
  head.add("waiting_for_seq", static_cast<std::int64_t>(pulse.trace().waitingFor()));
  return head.str();
}

void writeTo(PlainFile &file, Pulse &pulse, const Failure *failure) {
  const std::int64_t now = monotonicNanoseconds();
  const std::string head = headText(pulse, failure);
  file.write(head.substr(0, head.size() - 1) + ",\n\"ranks\":[");
  for (int rank = 0; rank < pulse.worldSize(); ++rank)
    file.write((rank ? ",\n" : "\n") + rankText(pulse, rank, now));
  file.write("],\n\"collectives\":[");
  const std::uint64_t last = pulse.trace().lastSequence();
  const std::uint64_t first = last > CollectiveTrace::capacity ? last - CollectiveTrace::capacity + 1 : 1;
  const char *separator = "\n";
  for (std::uint64_t sequence = first; sequence <= last; ++sequence)
    if (const auto record = pulse.trace().at(sequence)) {
      file.write(separator + recordText(*record, now));
      separator = ",\n";
    }
  file.write("]}\n");
}

} // namespace

std::string traceFileName(int rank) { return std::string(folder) + "/rank_" + std::to_string(rank) + ".json"; }

bool writeTraceFile(Pulse &pulse, const Failure *failure) {
  ::mkdir(folder, 0777);
  const std::string name = traceFileName(pulse.rank());
  const std::string temporary = name + ".tmp-" + std::to_string(::getpid());
  PlainFile file(temporary);
  writeTo(file, pulse, failure);
  return file.close() && ::rename(temporary.c_str(), name.c_str()) == 0;
}

} // namespace fsdpc::rt
