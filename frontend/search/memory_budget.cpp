#include "frontend/search/memory_budget.h"

#include "frontend/search/estimate.h"
#include "passes/support/bytes_text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace fsdpc {

namespace {

constexpr size_t maxShown = 6;

/// A change to the command line and its result.
struct Remedy {
  std::string change;
  Candidate plan;
  int64_t totalBytes = 0;
};

void addStrategies(const Candidate &asked, std::vector<Remedy> &remedies) {
  for (Strategy strategy : knownStrategies()) {
    std::optional<Candidate> changed =
        strategy == asked.strategy ? std::nullopt : asked.with(strategy, asked.worldSize);
    if (!changed)
      continue;
    std::string change = "--strategy " + spelled(strategy);
    if (isHybrid(strategy))
      change += " --data_parallel_shard_degree " + std::to_string(changed->shardDegree);
    remedies.push_back({change, std::move(*changed)});
  }
}

template <auto field, class T>
void add(const Candidate &asked, const llvm::Twine &change, T value, std::vector<Remedy> &remedies) {
  Candidate changed = asked;
  changed.*field = value;
  remedies.push_back({change.str(), std::move(changed)});
}

/// The smallest footprint that the options above can reach together.
void addAll(const Candidate &asked, std::vector<Remedy> &remedies) {
  int64_t ranks = asked.worldSize * 8;
  std::optional<Candidate> changed = asked.with(Strategy::fullShard, ranks);
  if (!changed)
    return;
  changed->microBatchSize = 1;
  changed->maxInflightAllGathers = 1;
  remedies.push_back({"--strategy full_shard --world_size " + std::to_string(ranks) +
                          " --micro_batch_size 1 --max_inflight_all_gathers 1",
                      std::move(*changed)});
}

std::vector<Remedy> remediesFor(const Candidate &asked) {
  std::vector<Remedy> remedies;
  if (asked.worldSize > 1)
    addStrategies(asked, remedies);
  for (ActivationCheckpointing mode : {ActivationCheckpointing::selective, ActivationCheckpointing::full})
    if (asked.checkpointing == ActivationCheckpointing::none)
      add<&Candidate::checkpointing>(asked, "--activation_checkpointing " + spelled(mode), mode, remedies);
  if (!asked.offloadsActivations)
    add<&Candidate::offloadsActivations>(asked, "--offload_activations", true, remedies);
  if (!asked.offloadsOptimizer)
    add<&Candidate::offloadsOptimizer>(asked, "--offload_optimizer", true, remedies);
  if (!asked.offloadsParams)
    add<&Candidate::offloadsParams>(asked, "--offload_params", true, remedies);
  if (asked.worldSize > 1 && asked.maxInflightAllGathers > 1)
    add<&Candidate::maxInflightAllGathers>(asked, "--max_inflight_all_gathers 1", int64_t(1), remedies);
  for (int64_t factor : {2, 4, 8}) {
    const int64_t ranks = asked.worldSize * factor;
    add<&Candidate::worldSize>(asked, "--world_size " + llvm::Twine(ranks), ranks, remedies);
  }
  for (int64_t size = asked.microBatchSize / 2; size >= 1; size /= 2)
    add<&Candidate::microBatchSize>(asked, "--micro_batch_size " + llvm::Twine(size), size, remedies);
  addAll(asked, remedies);
  return remedies;
}

/// Plans each remedy. Those that cannot be planned or do not help are dropped.
std::vector<Remedy> planned(std::vector<Remedy> remedies, llvm::StringRef input, int64_t totalBytes) {
  std::map<int64_t, llvm::Expected<Estimator>> byMicroBatch;
  std::vector<Remedy> helping;
  for (Remedy &remedy : remedies) {
    const int64_t size = remedy.plan.microBatchSize;
    auto found = byMicroBatch.find(size);
    if (found == byMicroBatch.end())
      found = byMicroBatch.emplace(size, Estimator::read(input, remedy.plan.values())).first;
    if (!found->second)
      continue;
    llvm::Expected<Estimate> estimate = found->second->plan(remedy.plan);
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
  for (const Remedy &remedy : llvm::ArrayRef(remedies).take_front(maxShown))
    out << "\n  " << llvm::right_justify(bytesText(remedy.totalBytes), 12) << "  " << remedy.change;
}

} // namespace

llvm::Error checkMemoryBudget(const Compilation &compilation, const OptionValues &values, llvm::StringRef input) {
  llvm::Expected<Candidate> asked = Candidate::of(values);
  if (!asked)
    return asked.takeError();
  const std::optional<int64_t> budget = asked->budgetBytes;
  if (!budget || compilation.module->stage != Stage::planned)
    return llvm::Error::success();
  MemoryReport memory = reportMemory(*compilation.module, *compilation.target);
  if (memory.totalBytes <= *budget)
    return llvm::Error::success();
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "the plan needs " << bytesText(memory.totalBytes) << " per rank, which is over --memory_budget "
      << bytesText(*budget) << "\nlargest at the peak (" << memory.peakFunction << ", " << memory.peakNode
      << (memory.peakUnit.empty() ? "" : ", unit ") << memory.peakUnit << ")";
  for (const LiveValue &value : memory.peakLive)
    out << "\n  " << llvm::right_justify(bytesText(value.bytes), 12) << "  " << value.value;
  if (compilation.imported.model)
    describeRemedies(planned(remediesFor(*asked), input, memory.totalBytes), *budget, out);
  else
    out << "\ncompile from the ONNX file to learn what would help";
  return llvm::createStringError(text);
}

} // namespace fsdpc
