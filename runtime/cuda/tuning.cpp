#include "runtime/cuda/tuning.h"

#include "runtime/common/failure.h"
#include "runtime/common/file.h"
#include "runtime/common/json.h"

#include <cstdio>
#include <limits>
#include <optional>

namespace fsdpc::rt {
namespace {

constexpr const char *schema = "fsdpc.tuning/1";
constexpr std::size_t digitsPerWord = 16;

std::string hexOf(const Algorithm &algorithm) {
  std::string text;
  char word[digitsPerWord + 1];
  for (const std::uint64_t value : algorithm) {
    std::snprintf(word, sizeof word, "%016llx", static_cast<unsigned long long>(value));
    text += word;
  }
  return text;
}

Algorithm algorithmOf(const std::string &hex, const JsonReader &reader) {
  Algorithm algorithm{};
  if (hex.size() != digitsPerWord * algorithm.size() || hex.find_first_not_of("0123456789abcdef") != std::string::npos)
    reader.fail("an algorithm is 128 hexadecimal digits");
  for (std::size_t i = 0; i < algorithm.size(); ++i)
    algorithm[i] = std::stoull(hex.substr(i * digitsPerWord, digitsPerWord), nullptr, 16);
  return algorithm;
}

std::string readAll(const std::string &path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.sizeBytes()), '\0');
  file.read(0, text.data(), file.sizeBytes());
  return text;
}

/// The file's entries for this machine. A file that cannot be parsed as a table is ignored and replaced.
TuningTable tableOfFile(const std::string &path, const std::string &machine) {
  if (fileExists(path)) {
    try {
      TuningTable table = TuningTable::fromJson(readAll(path), path);
      if (table.machine == machine)
        return table;
    } catch (const Failure &failure) {
      std::fprintf(stderr, "fsdpc: %s; matmuls are timed again\n", failure.what());
    }
  }
  return {machine, {}};
}

void writeTable(const TuningTable &table, const std::string &path) {
  const std::string text = table.toJson() + "\n";
  try {
    OutputFile file(path, static_cast<std::int64_t>(text.size()));
    file.write(0, text.data(), static_cast<std::int64_t>(text.size()));
    file.commit();
  } catch (const Failure &failure) {
    std::fprintf(stderr, "fsdpc: %s; the next run times its matmuls again\n", failure.what());
  }
}

std::string sharedText(HostGroup &group, std::string text) {
  auto bytes = static_cast<std::int64_t>(text.size());
  group.broadcast(&bytes, sizeof bytes);
  text.resize(static_cast<std::size_t>(bytes));
  group.broadcast(text.data(), bytes);
  return text;
}

/// Requires that every rank has rank 0's device and library, so that the same algorithm is the same arithmetic.
void requireSameMachine(HostGroup &group, const std::string &machine, const std::string &machineOfRoot) {
  const std::int64_t differs = machine != machineOfRoot;
  std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()));
  group.exchange(&differs, sizeof differs, all.data());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != 0) {
      Failure failure(ExitCode::disagreement, "rank " + std::to_string(rank) + " has another device or library than " +
                                                  machineOfRoot +
                                                  ", for which matmuls are tuned; compile without --tune");
      failure.details = "differs=tuning other=" + std::to_string(rank);
      failure.everyRank = true;
      throw failure;
    }
}

} // namespace

std::string TuningTable::toJson() const {
  JsonObject algorithms;
  for (const auto &[key, algorithm] : choices)
    algorithms.add(key, hexOf(algorithm));
  return JsonObject().add("schema", schema).add("machine", machine).addRaw("algorithms", algorithms.str()).str();
}

TuningTable TuningTable::fromJson(const std::string &text, const std::string &where) {
  TuningTable table;
  JsonReader reader(text, where);
  reader.expect(JsonToken::beginObject, "an object");
  const auto stringOf = [&](const char *key) {
    reader.expect(JsonToken::key, key);
    if (reader.value() != key)
      reader.fail(std::string(key) + " is expected");
  };
  stringOf("schema");
  reader.expect(JsonToken::string, schema);
  if (reader.value() != schema)
    reader.fail(std::string("not ") + schema);
  stringOf("machine");
  reader.expect(JsonToken::string, "the device and the library");
  table.machine = reader.value();
  stringOf("algorithms");
  reader.expect(JsonToken::beginObject, "an object");
  while (reader.next() == JsonToken::key) {
    const std::string key = reader.value();
    reader.expect(JsonToken::string, "an algorithm");
    table.choices[key] = algorithmOf(reader.value(), reader);
  }
  reader.expect(JsonToken::endObject, "the end");
  reader.expect(JsonToken::end, "the end");
  return table;
}

bool Tuner::timeMissing(TuningTable &table) {
  bool isNew = false;
  for (Tunable *product : products) {
    if (table.choices.contains(product->key()))
      continue;
    double shortest = std::numeric_limits<double>::infinity();
    for (const Algorithm &candidate : product->candidates())
      if (const double time = product->microseconds(candidate); time < shortest) {
        shortest = time;
        table.choices[product->key()] = candidate;
      }
    isNew = true;
  }
  return isNew;
}

void Tuner::choose(HostGroup &group, const std::string &path) {
  TuningTable table;
  std::optional<Failure> failure;
  if (group.rank() == 0) {
    try {
      table = tableOfFile(path, machine);
      if (timeMissing(table))
        writeTable(table, path);
    } catch (const Failure &thrown) {
      failure = thrown;
    }
  }
  const std::string text = sharedText(group, failure ? "" : table.toJson());
  if (text.empty()) {
    Failure shared = failure ? *failure : Failure(ExitCode::internal, "rank 0 could not time the matmuls");
    shared.everyRank = true;
    throw shared;
  }
  table = TuningTable::fromJson(text, "the table of rank 0");
  requireSameMachine(group, machine, table.machine);
  for (Tunable *product : products)
    product->use(table.choices.at(product->key()));
  products.clear();
}

} // namespace fsdpc::rt
