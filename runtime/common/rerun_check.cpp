#include "runtime/common/rerun_check.h"

#include "runtime/common/arena_access.h"
#include "runtime/common/fingerprint.h"

#include <cstdio>
#include <cstring>

namespace fsdpc::rt {
namespace {

/// Calls visit(place, bytes, firstByte) for all tensors in pieces; `firstByte` counts from the first tensor on.
template <class Visit>
void forEachPiece(const std::vector<HeldTensor> &tensors, const Visit &visit) {
  std::int64_t first = 0;
  for (const HeldTensor &tensor : tensors)
    for (std::int64_t done = 0; done < tensor.bytes; done += arenaPieceBytes) {
      const std::int64_t piece = std::min(arenaPieceBytes, tensor.bytes - done);
      visit(Place{tensor.place.space, tensor.place.offsetBytes + done}, piece, first);
      first += piece;
    }
}

} // namespace

RerunCheck::RerunCheck(const Job &job) : job(job), tensors(heldState(job.program, job.context.rank)) {
  std::size_t bytes = 0;
  for (const HeldTensor &tensor : tensors)
    bytes += static_cast<std::size_t>(tensor.bytes);
  saved.resize(bytes);
}

/// All ranks are between two steps.
void RerunCheck::settle() const {
  job.platform.drainCollectives();
  if (job.functions.discardAhead)
    job.functions.discardAhead(job.context);
}

StepOutcome RerunCheck::run(std::int64_t step, const std::function<StepOutcome()> &compute) {
  settle();
  forEachPiece(tensors, [&](Place place, std::int64_t bytes, std::int64_t first) {
    std::memcpy(saved.data() + first, readArena(job.context, place, bytes), static_cast<std::size_t>(bytes));
  });
  const Result once = computed(compute);
  Result again = computedAgain(compute);
  if (areEqual(once, again))
    return outcomeOf(again);
  Result third = computedAgain(compute);
  const bool isSecond = areEqual(third, again);
  if (!isSecond && !areEqual(third, once)) {
    const std::string what = firstDifference(once, again);
    throw Failure(ExitCode::disagreement,
                  "three computations of step " + std::to_string(step) + " gave three results; " +
                      (what.empty() ? "another rank names the tensor" : "the first that differs is " + what),
                  true);
  }
  report(step, once, again);
  return outcomeOf(third);
}

RerunCheck::Result RerunCheck::computed(const std::function<StepOutcome()> &compute) {
  Result result;
  try {
    result.outcome = compute();
  } catch (const Failure &failure) {
    if (failure.code != ExitCode::nonFinite || !failure.everyRank)
      throw;
    result.failure = failure;
  }
  settle(); // a gather for the next step has read this result
  result.hashes = hashesOf(tensors, job.context);
  Fingerprint loss;
  loss.addBytes(&result.outcome.loss, sizeof result.outcome.loss);
  result.hashes.push_back(result.failure ? 0 : loss.value());
  return result;
}

RerunCheck::Result RerunCheck::computedAgain(const std::function<StepOutcome()> &compute) {
  forEachPiece(tensors, [&](Place place, std::int64_t bytes, std::int64_t first) {
    writeArena(job.context, place, bytes,
               [&](std::byte *to) { std::memcpy(to, saved.data() + first, static_cast<std::size_t>(bytes)); });
  });
  job.platform.barrier(); // other ranks read this rank's shards
  return computed(compute);
}

/// On all ranks.
bool RerunCheck::areEqual(const Result &a, const Result &b) const {
  return job.platform.maxOverRanks(a.hashes != b.hashes) == 0;
}

/// "": none on this rank.
std::string RerunCheck::firstDifference(const Result &a, const Result &b) const {
  for (std::size_t i = 0; i < a.hashes.size(); ++i)
    if (a.hashes[i] != b.hashes[i])
      return i < tensors.size() ? tensors[i].name : "the loss";
  return "";
}

void RerunCheck::report(std::int64_t step, const Result &a, const Result &b) {
  const std::string mine = firstDifference(a, b);
  const std::int64_t ranks = job.platform.sumOverRanks(mine.empty() ? 0 : 1);
  const std::int64_t world = job.program.worldSize;
  const std::int64_t lowest = world - job.platform.maxOverRanks(mine.empty() ? 0 : world - job.context.rank);
  JsonObject line;
  line.add("step", step).add("kind", "transient").add("ranks", ranks).add("lowest_rank", lowest);
  if (!mine.empty())
    line.add("tensor", mine);
  job.log.write(JsonObject().addRaw("rerun_difference", line.str()));
  if (job.context.rank == lowest)
    std::fprintf(
        stderr,
        "fsdpc: warning: rank %lld: one of three computations of step %lld gave another result on %lld rank(s), here "
        "of %s; the result of the other two stays\n",
        static_cast<long long>(lowest), static_cast<long long>(step), static_cast<long long>(ranks), mine.c_str());
}

StepOutcome RerunCheck::outcomeOf(Result &result) const {
  if (result.failure)
    throw *result.failure;
  return result.outcome;
}

} // namespace fsdpc::rt
