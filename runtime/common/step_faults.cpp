#include "runtime/common/step_faults.h"

#if defined(FSDPC_TEST_BUILD)
#include "runtime/common/arena_access.h"
#include "runtime/common/held_state.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace fsdpc::rt {
namespace {

/// From the environment; a negative rank: none.
struct FlippedBit {
  int rank = -1;
  long long step = 0;
  unsigned long long bit = 0;
  char name[256] = "";

  FlippedBit() {
    const char *text = std::getenv("FSDPC_MEMORY_FAULT");
    if (!text || std::sscanf(text, "%d:%lld:%llu:%255s", &rank, &step, &bit, name) != 4)
      rank = -1;
  }
};

struct SlowRank {
  int rank = -1;
  int milliseconds = 0;

  SlowRank() {
    const char *text = std::getenv("FSDPC_SLOW_RANK");
    if (!text || std::sscanf(text, "%d:%d", &rank, &milliseconds) != 2)
      rank = -1;
  }
};

void flip(const Job &job, const HeldTensor &tensor, unsigned long long number) {
  const auto bit = static_cast<std::int64_t>(number % (static_cast<unsigned long long>(tensor.bytes) * 8));
  const Place place{tensor.place.space, tensor.place.offsetBytes + bit / 8};
  const std::byte flipped = *readArena(job.context, place, 1) ^ std::byte{1} << (bit % 8);
  writeArena(job.context, place, 1, [&](std::byte *to) { *to = flipped; });
  std::fprintf(stderr, "fsdpc: flipped bit %lld of %s on rank %d\n", static_cast<long long>(bit), tensor.name.c_str(),
               job.context.rank);
}

} // namespace

void injectStepFaults(const Job &job, std::int64_t step) {
  static FlippedBit fault;
  static const SlowRank slow;
  if (slow.rank == job.context.rank)
    std::this_thread::sleep_for(std::chrono::milliseconds(slow.milliseconds));
  if (fault.rank != job.context.rank || fault.step != step)
    return;
  fault.rank = -1;
  for (const HeldTensor &tensor : heldState(job.program, job.context.rank))
    if (tensor.bytes > 0 && tensor.name == std::string_view(fault.name))
      return flip(job, tensor, fault.bit);
}

} // namespace fsdpc::rt

#else

void fsdpc::rt::injectStepFaults(const Job &, std::int64_t) {}

#endif
