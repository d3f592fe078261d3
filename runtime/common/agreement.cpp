#include "runtime/common/agreement.h"

#include "runtime/common/file.h"
#include "runtime/common/fingerprint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace fsdpc::rt {
namespace {

/// The first data that ranks compare. Its layout must never depend on the program.
struct Identity {
  char planHash[96] = {};
  char model[96] = {};
  std::int64_t worldSize = 0;
  std::uint64_t executableHash = 0;
};

Identity identityOf(const ProgramInfo &program, const std::string &executable) {
  Identity identity;
  std::strncpy(identity.planHash, program.planHash, sizeof identity.planHash - 1);
  std::strncpy(identity.model, program.modelName, sizeof identity.model - 1);
  identity.worldSize = program.worldSize;
  const InputFile file(executable);
  std::vector<std::byte> buffer(1 << 16);
  Fingerprint hash;
  for (std::int64_t at = 0; at < file.sizeBytes(); at += static_cast<std::int64_t>(buffer.size())) {
    const std::int64_t bytes = std::min(static_cast<std::int64_t>(buffer.size()), file.sizeBytes() - at);
    file.read(at, buffer.data(), bytes);
    hash.addBytes(buffer.data(), bytes);
  }
  identity.executableHash = hash.value();
  return identity;
}

std::string describe(const Identity &identity) {
  return "plan " + std::string(identity.planHash).substr(0, 16) + " (" + identity.model + ", compiled for " +
         std::to_string(identity.worldSize) + " ranks)";
}

[[noreturn]] void disagree(const char *what, int other, const std::string &message) {
  Failure failure(ExitCode::disagreement, message);
  failure.details = std::string("differs=") + what + " other=" + std::to_string(other);
  throw failure;
}

void compareIdentities(const std::vector<Identity> &all) {
  const std::string sameTrain = "; start every rank with the same OUT/train";
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    if (std::strcmp(all[rank].planHash, all[0].planHash) != 0)
      disagree("plan", static_cast<int>(rank),
               who + " runs " + describe(all[rank]) + ", rank 0 runs " + describe(all[0]) + sameTrain);
    if (all[rank].executableHash != all[0].executableHash)
      disagree("binary", static_cast<int>(rank),
               who + " runs the plan of rank 0 in another executable, of another build" + sameTrain);
  }
}

/// "--lr 0.1 (rank 0: 0.2), ..." for the lines `name value` that differ.
std::string optionDifferences(const std::string &ours, const std::string &theirs) {
  std::string text;
  const auto lineAt = [](const std::string &lines, std::size_t &at) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    std::string line = lines.substr(at, end - at);
    at = std::min(end + 1, lines.size());
    return line;
  };
  for (std::size_t a = 0, b = 0; a < ours.size() || b < theirs.size();) {
    const std::string our = lineAt(ours, a), their = lineAt(theirs, b);
    if (our != their)
      text += (text.empty() ? "--" : ", --") + their +
              " (rank 0: " + our.substr(std::min(our.find(' ') + 1, our.size())) + ")";
  }
  return text;
}

/// The compared properties of a collective. Sequence 0: no collective.
struct TraceRow {
  std::uint64_t sequence = 0, fingerprint = 0, commonResult = 0;
  std::int64_t group = 0;
};

TraceRow rowOf(const CollectiveTrace &trace, std::uint64_t sequence) {
  const auto record = trace.at(sequence);
  if (!record || !record->waitedNanoseconds)
    return {};
  return {sequence, record->fingerprint, record->hasCommonResult() ? record->resultHash : 0, record->group};
}

/// Compares row `i` of all ranks' rows with the first rank's row of the same collective. The rows of a rank are
/// contiguous and start with its last collective, which is the same one on every rank.
void compareRows(const std::vector<TraceRow> &all, std::size_t i, const CollectiveTrace &trace) {
  const TraceRow &row = all[i];
  const auto other = static_cast<int>(i / CollectiveTrace::capacity);
  for (int rank = 0; rank < other && row.sequence != 0; ++rank) {
    const TraceRow &first =
        all[static_cast<std::size_t>(rank) * CollectiveTrace::capacity + i % CollectiveTrace::capacity];
    const bool sameCollective = first.sequence == row.sequence && first.fingerprint == row.fingerprint;
    if (sameCollective && (first.group != row.group || first.commonResult == row.commonResult))
      continue;
    const auto record = trace.at(row.sequence);
    const std::string what =
        (record ? inWords(*record) + ", " : "") + "collective " + std::to_string(row.sequence) + " of the run";
    Failure failure(ExitCode::disagreement,
                    "rank " + std::to_string(other) +
                        (sameCollective ? " has another result than rank " : " reached another collective than rank ") +
                        std::to_string(rank) + ": " + what);
    failure.details = (record ? closingDetails(*record) + " " : "") + "other=" + std::to_string(other);
    throw failure;
  }
}

} // namespace

void agreed(Platform &platform, const std::function<void()> &work) {
  std::optional<Failure> mine;
  try {
    work();
  } catch (const Failure &failure) {
    mine = failure;
  }
  const int ranks = platform.worldSize();
  // The largest key belongs to the lowest failing rank; 0: none failed.
  const std::int64_t key = mine ? std::int64_t{ranks - platform.rank()} * 1000 + static_cast<int>(mine->code) : 0;
  const std::int64_t largest = platform.maxOverRanks(key);
  if (largest == 0)
    return;
  Failure shared = mine ? *mine : Failure(static_cast<ExitCode>(largest % 1000), "another rank failed");
  shared.everyRank = true;
  shared.reportingRank = ranks - static_cast<int>(largest / 1000);
  throw shared;
}

void requireSameProgram(Platform &platform, const ProgramInfo &program, const std::string &executable) {
  Identity mine;
  agreed(platform, [&] { mine = identityOf(program, executable); });
  std::vector<Identity> all(platform.rank() == 0 ? static_cast<std::size_t>(platform.worldSize()) : 0);
  platform.gatherToRoot(&mine, sizeof mine, all.empty() ? nullptr : all.data());
  agreed(platform, [&] { compareIdentities(all); });
}

void requireSameOptions(Platform &platform, const Options &options) {
  std::string mine;
  for (const auto &[name, value] : resolvedSettings(options))
    mine += name + " " + value + "\n";
  const auto bytes = static_cast<std::size_t>(platform.maxOverRanks(static_cast<std::int64_t>(mine.size()) + 1));
  std::string padded = mine + std::string(bytes - mine.size(), '\0');
  std::vector<char> all(platform.rank() == 0 ? bytes * static_cast<std::size_t>(platform.worldSize()) : 0);
  platform.gatherToRoot(padded.data(), static_cast<std::int64_t>(bytes), all.empty() ? nullptr : all.data());
  agreed(platform, [&] {
    for (std::size_t rank = 1; rank * bytes < all.size(); ++rank) {
      const std::string differences = optionDifferences(mine, &all[rank * bytes]);
      if (!differences.empty())
        disagree("options", static_cast<int>(rank),
                 "rank " + std::to_string(rank) + " was started with other options: " + differences);
    }
  });
}

void requireSameTraces(Platform &platform, Pulse &pulse) {
  std::vector<TraceRow> mine(CollectiveTrace::capacity);
  for (std::uint64_t i = 0; i < mine.size(); ++i)
    mine[i] = rowOf(pulse.trace(), pulse.trace().lastSequence() - i);
  const std::size_t ranks = platform.rank() == 0 ? static_cast<std::size_t>(platform.worldSize()) : 0;
  std::vector<TraceRow> all(ranks * mine.size());
  platform.gatherToRoot(mine.data(), static_cast<std::int64_t>(mine.size() * sizeof(TraceRow)),
                        all.empty() ? nullptr : all.data());
  agreed(platform, [&] {
    for (std::size_t i = 0; i < all.size(); ++i)
      compareRows(all, i, pulse.trace());
  });
}

} // namespace fsdpc::rt
