#include "runtime/common/replica_check.h"

#include "runtime/common/agreement.h"
#include "runtime/common/shards.h"

#include <map>

namespace fsdpc::rt {
namespace {

bool isReplicated(const ProgramInfo &program, const HeldTensor &tensor) {
  return (tensor.segment ? holderCount(program, *tensor.segment) : program.worldSize) > 1;
}

/// Ranks with the same number hold the same part.
int partOf(const ProgramInfo &program, const HeldTensor &tensor, int rank) {
  return tensor.segment ? shardIndex(program, *tensor.segment, rank) : 0;
}

std::string listOf(const std::vector<int> &ranks) {
  std::string text;
  for (const int rank : ranks)
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

using RanksByHash = std::map<std::uint64_t, std::vector<int>>;

/// The smallest group of ranks with the same bits.
const std::vector<int> &fewest(const RanksByHash &ranks) {
  const std::vector<int> *found = &ranks.begin()->second;
  for (const auto &[hash, same] : ranks)
    if (same.size() < found->size())
      found = &same;
  return *found;
}

[[noreturn]] void reportDrift(const std::string &tensor, const RanksByHash &ranks, std::int64_t step) {
  const std::vector<int> &odd = fewest(ranks);
  std::size_t all = 0;
  for (const auto &[hash, same] : ranks)
    all += same.size();
  const std::string what = 2 * odd.size() < all
                               ? "rank " + listOf(odd) + " holds other bits of " + tensor + " than the " +
                                     std::to_string(all - odd.size()) + " other ranks that hold it"
                               : "the ranks that hold " + tensor +
                                     " do not agree on its bits: " + listOf(ranks.begin()->second) + " against " +
                                     listOf(ranks.rbegin()->second);
  Failure failure(ExitCode::disagreement, "after step " + std::to_string(step) + ", " + what +
                                              "; resume from a checkpoint before it, and test the memory of that host");
  failure.details = "differs=replica other=" + std::to_string(odd.front());
  throw failure;
}

} // namespace

ReplicaCheck::ReplicaCheck(const Job &job) : job(job) {
  bool hasTensor = false;
  for (HeldTensor &tensor : heldState(job.program, job.context.rank))
    if (isReplicated(job.program, tensor)) {
      hasTensor |= tensor.segment != nullptr;
      replicated.push_back(std::move(tensor));
    }
  if (!hasTensor)
    throw Failure(ExitCode::usage, "--replica_check: no two ranks of this program hold the same part of its state",
                  true);
}

void ReplicaCheck::run(std::int64_t step) {
  const std::vector<std::uint64_t> mine = hashesOf(replicated, job.context);
  std::vector<std::uint64_t> all(job.context.rank == 0 ? mine.size() * static_cast<std::size_t>(job.program.worldSize)
                                                       : 0);
  job.platform.gatherToRoot(mine.data(), static_cast<std::int64_t>(mine.size() * sizeof mine[0]),
                            all.empty() ? nullptr : all.data());
  agreed(job.platform, [&] { compare(all, step); });
}

/// On rank 0; elsewhere there is nothing to compare.
void ReplicaCheck::compare(const std::vector<std::uint64_t> &all, std::int64_t step) const {
  for (std::size_t i = 0; i < replicated.size() && !all.empty(); ++i) {
    std::map<int, RanksByHash> parts;
    for (int rank = 0; rank < job.program.worldSize; ++rank)
      parts[partOf(job.program, replicated[i], rank)][all[static_cast<std::size_t>(rank) * replicated.size() + i]]
          .push_back(rank);
    for (const auto &[part, ranks] : parts)
      if (ranks.size() > 1)
        reportDrift(replicated[i].name, ranks, step);
  }
}

} // namespace fsdpc::rt
