#include "frontend/search/memory_budget.h"

#include "frontend/search/estimate.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace fsdpc {

namespace {

constexpr size_t mostShown = 6;

/// A change to the command line and what it comes to.
struct Remedy {
  std::string change;
  OptionValues values;
  int64_t totalBytes = 0;
};

void addStrategies(const OptionValues &values, std::vector<Remedy> &remedies) {
  for (const std::string &strategy : knownStrategies()) {
    OptionValues changed = values;
    if (strategy == values.text("strategy") || !choosePlan(changed, strategy, values.integer("world_size")))
      continue;
    std::string change = "--strategy " + strategy;
    if (llvm::StringRef(strategy).starts_with("hybrid"))
      change += " --data_parallel_shard_degree " + changed.text("data_parallel_shard_degree").str();
    remedies.push_back({change, std::move(changed)});
  }
}

void add(const OptionValues &values, llvm::StringRef option, int64_t value, std::vector<Remedy> &remedies) {
  OptionValues changed = values;
  changed.resolve(option, std::to_string(value));
  remedies.push_back({("--" + option + " " + llvm::Twine(value)).str(), std::move(changed)});
}

/// The smallest footprint that the options above can come to, together.
void addAll(const OptionValues &values, std::vector<Remedy> &remedies) {
  OptionValues changed = values;
  int64_t ranks = values.integer("world_size") * 8;
  if (!choosePlan(changed, "full_shard", ranks))
    return;
  changed.resolve("micro_batch_size", "1");
  changed.resolve("max_inflight_all_gathers", "1");
  remedies.push_back({"--strategy full_shard --world_size " + std::to_string(ranks) +
                          " --micro_batch_size 1 --max_inflight_all_gathers 1",
                      std::move(changed)});
}

std::vector<Remedy> remediesFor(OptionValues values) {
  std::vector<Remedy> remedies;
  if (!values.given("threads"))
    values.resolve("threads", "0"); // follows from the number of ranks
  if (values.integer("world_size") > 1)
    addStrategies(values, remedies);
  for (llvm::StringRef mode : {"selective", "full"})
    if (values.text("activation_checkpointing") == "none") {
      OptionValues changed = values;
      changed.resolve("activation_checkpointing", mode.str());
      remedies.push_back({"--activation_checkpointing " + mode.str(), std::move(changed)});
    }
  for (llvm::StringRef option : {"offload_activations", "offload_optimizer", "offload_params"})
    if (!values.flag(option)) {
      OptionValues changed = values;
      changed.resolve(option, "true");
      remedies.push_back({("--" + option).str(), std::move(changed)});
    }
  if (values.integer("world_size") > 1 && values.integer("max_inflight_all_gathers") > 1)
    add(values, "max_inflight_all_gathers", 1, remedies);
  for (int64_t factor : {2, 4, 8})
    add(values, "world_size", values.integer("world_size") * factor, remedies);
  for (int64_t size = values.integer("micro_batch_size") / 2; size >= 1; size /= 2)
    add(values, "micro_batch_size", size, remedies);
  addAll(values, remedies);
  return remedies;
}

/// Plans each remedy; those that cannot be planned or do not help are gone.
std::vector<Remedy> planned(std::vector<Remedy> remedies, llvm::StringRef input, int64_t totalBytes) {
  std::map<std::string, llvm::Expected<Estimator>> byMicroBatch;
  std::vector<Remedy> helping;
  for (Remedy &remedy : remedies) {
    std::string size = remedy.values.text("micro_batch_size").str();
    auto found = byMicroBatch.find(size);
    if (found == byMicroBatch.end())
      found = byMicroBatch.emplace(size, Estimator::read(input, remedy.values)).first;
    if (!found->second)
      continue;
    llvm::Expected<Estimate> estimate = found->second->plan(remedy.values);
    if (!estimate) {
      llvm::consumeError(estimate.takeError());
      continue;
    }
    remedy.totalBytes = estimate->memory.totalBytes;
    if (remedy.totalBytes < totalBytes)
      helping.push_back(std::move(remedy));
  }
  for (auto &[size, estimator] : byMicroBatch)
    if (!estimator)
      llvm::consumeError(estimator.takeError());
  return helping;
}

void describeRemedies(std::vector<Remedy> remedies, int64_t budget, llvm::raw_ostream &out) {
  bool anyFits = llvm::any_of(remedies, [&](const Remedy &remedy) { return remedy.totalBytes <= budget; });
  if (anyFits) {
    llvm::erase_if(remedies, [&](const Remedy &remedy) { return remedy.totalBytes > budget; });
    out << "\nwithin the budget would be";
  } else {
    llvm::stable_sort(remedies, [](const Remedy &a, const Remedy &b) { return a.totalBytes < b.totalBytes; });
    out << (remedies.empty() ? "\nno other strategy, more ranks or smaller micro-batches would help"
                             : "\nnothing that was tried is within the budget; nearest are");
  }
  remedies.resize(std::min(remedies.size(), mostShown), Remedy{"", {}});
  for (const Remedy &remedy : remedies)
    out << "\n  " << llvm::right_justify(bytesText(remedy.totalBytes), 12) << "  " << remedy.change;
}

} // namespace

llvm::Expected<std::optional<int64_t>> memoryBudget(const OptionValues &values) {
  if (values.text("memory_budget").empty())
    return std::nullopt;
  llvm::Expected<int64_t> bytes = bytesOf(values, "memory_budget");
  if (!bytes)
    return bytes.takeError();
  return *bytes;
}

llvm::Error checkMemoryBudget(const Compilation &compilation, const OptionValues &values, llvm::StringRef input) {
  llvm::Expected<std::optional<int64_t>> budget = memoryBudget(values);
  if (!budget)
    return budget.takeError();
  if (!*budget || compilation.module->stage != Stage::planned)
    return llvm::Error::success();
  MemoryReport memory = reportMemory(*compilation.module, *compilation.target);
  if (memory.totalBytes <= **budget)
    return llvm::Error::success();
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "the plan needs " << bytesText(memory.totalBytes) << " per rank, which is over --memory_budget "
      << bytesText(**budget) << "\nlargest at the peak (" << memory.peakFunction << ", " << memory.peakNode
      << (memory.peakUnit.empty() ? "" : ", unit ") << memory.peakUnit << ")";
  for (const LiveValue &value : memory.peakLive)
    out << "\n  " << llvm::right_justify(bytesText(value.bytes), 12) << "  " << value.value;
  if (compilation.imported.model)
    describeRemedies(planned(remediesFor(values), input, memory.totalBytes), **budget, out);
  else
    out << "\ncompile from the ONNX file to learn what would help";
  return llvm::createStringError(text);
}

} // namespace fsdpc
