#include "tests/emulated/block.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

uint3 threadIdx{}, blockIdx{};
dim3 blockDim, gridDim;

namespace fsdpc::emulated {

std::byte *dynamicSharedMemory = nullptr;

namespace {

namespace context = boost::context;

constexpr int warpSize = 32;
constexpr std::size_t stackBytes = 128 * 1024;

[[noreturn]] void fail(const char *what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::abort();
}

enum class State : std::uint8_t { runnable, atBlockBarrier, atWarpBarrier, ended };

/// A fiber that runs one thread after another, so a thread without barriers costs two switches.
struct Lane {
  context::fiber inside;  ///< resumes the thread
  context::fiber outside; ///< back to the runner
  uint3 index{};
  State state = State::ended;
  int phase = 0; ///< exchanges so far, modulo 2
};

struct Warp {
  int threads = 0, arrived = 0;
  std::uint64_t slots[2][warpSize] = {};
};

class Runner {
public:
  void run(const Launch &launch, const std::function<void()> &thread);
  void blockBarrier();
  void warpBarrier(unsigned mask);
  std::uint64_t exchange(unsigned mask, std::uint64_t mine, int lane);
  unsigned ballot(unsigned mask, bool mine);
  int laneOf() const { return current % warpSize; }

private:
  void prepare(int threads);
  void runBlock(const dim3 &dimensions);
  void resume(int index);
  void leave(State state);
  bool releaseBarriers();
  bool release(int first, int last, State state);
  void arrive(unsigned mask);

  const std::function<void()> *body = nullptr;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<Warp> warps;
  context::pooled_fixedsize_stack stacks{stackBytes};
  int current = 0, threads = 0;
};

Runner &runner() {
  static Runner instance; // one block runs at a time, whichever thread of the host drives the device
  return instance;
}

void Runner::prepare(int count) {
  threads = count;
  warps.assign(static_cast<std::size_t>((count + warpSize - 1) / warpSize), {});
  while (static_cast<int>(lanes.size()) < count) {
    lanes.push_back(std::make_unique<Lane>());
    Lane &lane = *lanes.back();
    lane.inside = context::fiber(std::allocator_arg, stacks, [this, &lane](context::fiber &&outside) {
      for (lane.outside = std::move(outside);;) {
        (*body)();
        leave(State::ended);
      }
      return std::move(lane.outside);
    });
  }
}

/// From inside a thread: back to the runner, until this thread may go on.
void Runner::leave(State state) {
  Lane &lane = *lanes[static_cast<std::size_t>(current)];
  lane.state = state;
  lane.outside = std::move(lane.outside).resume();
}

void Runner::resume(int index) {
  Lane &lane = *lanes[static_cast<std::size_t>(index)];
  current = index;
  threadIdx = lane.index;
  lane.state = State::runnable;
  lane.inside = std::move(lane.inside).resume();
}

void Runner::runBlock(const dim3 &dimensions) {
  int index = 0;
  for (Warp &warp : warps)
    warp = {};
  for (unsigned z = 0; z < dimensions.z; ++z)
    for (unsigned y = 0; y < dimensions.y; ++y)
      for (unsigned x = 0; x < dimensions.x; ++x, ++index) {
        Lane &lane = *lanes[static_cast<std::size_t>(index)];
        lane.index = {x, y, z};
        lane.state = State::runnable;
        lane.phase = 0;
        ++warps[static_cast<std::size_t>(index / warpSize)].threads;
      }
  bool some = true;
  while (some) {
    some = false;
    for (int i = 0; i < threads; ++i)
      if (lanes[static_cast<std::size_t>(i)]->state == State::runnable) {
        resume(i);
        some = true;
      }
    some = releaseBarriers() || some;
  }
  for (int i = 0; i < threads; ++i)
    if (lanes[static_cast<std::size_t>(i)]->state != State::ended)
      fail("threads of a block wait at different barriers, or for threads that have returned");
}

/// Lets threads [first, last) go on if all that have not ended wait in `state`.
bool Runner::release(int first, int last, State state) {
  bool waits = false;
  for (int i = first; i < last; ++i) {
    const State at = lanes[static_cast<std::size_t>(i)]->state;
    if (at == State::ended)
      continue;
    if (at != state)
      return false;
    waits = true;
  }
  for (int i = first; waits && i < last; ++i)
    if (lanes[static_cast<std::size_t>(i)]->state == state)
      lanes[static_cast<std::size_t>(i)]->state = State::runnable;
  return waits;
}

bool Runner::releaseBarriers() {
  bool released = release(0, threads, State::atBlockBarrier);
  for (int first = 0; first < threads; first += warpSize) {
    Warp &warp = warps[static_cast<std::size_t>(first / warpSize)];
    if (warp.arrived != warp.threads)
      continue;
    warp.arrived = 0;
    released = release(first, std::min(first + warpSize, threads), State::atWarpBarrier) || released;
  }
  return released;
}

void Runner::blockBarrier() { leave(State::atBlockBarrier); }

void Runner::warpBarrier(unsigned mask) {
  if (mask != 0xffffffffu)
    fail("only whole warps are emulated");
  ++warps[static_cast<std::size_t>(current / warpSize)].arrived;
  leave(State::atWarpBarrier);
}

std::uint64_t Runner::exchange(unsigned mask, std::uint64_t mine, int lane) {
  Lane &self = *lanes[static_cast<std::size_t>(current)];
  Warp &warp = warps[static_cast<std::size_t>(current / warpSize)];
  // Two sets of slots: who is ahead writes the next exchange while others still read this one.
  std::uint64_t *slots = warp.slots[self.phase];
  self.phase ^= 1;
  slots[laneOf()] = mine;
  warpBarrier(mask);
  return slots[lane & (warpSize - 1)];
}

unsigned Runner::ballot(unsigned mask, bool mine) {
  Warp &warp = warps[static_cast<std::size_t>(current / warpSize)];
  const int phase = lanes[static_cast<std::size_t>(current)]->phase;
  exchange(mask, mine, 0);
  unsigned bits = 0;
  for (int lane = 0; lane < warp.threads; ++lane)
    bits |= warp.slots[phase][lane] ? 1u << lane : 0u;
  return bits;
}

void Runner::run(const Launch &launch, const std::function<void()> &thread) {
  body = &thread;
  blockDim = launch.block;
  gridDim = launch.grid;
  prepare(static_cast<int>(launch.block.x * launch.block.y * launch.block.z));
  if (threads == 0 || threads > 1024)
    fail("a block has 1 to 1024 threads");
  std::vector<std::max_align_t> shared(launch.sharedBytes / sizeof(std::max_align_t) + 1);
  dynamicSharedMemory = reinterpret_cast<std::byte *>(shared.data());
  for (unsigned z = 0; z < launch.grid.z; ++z)
    for (unsigned y = 0; y < launch.grid.y; ++y)
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        blockIdx = {x, y, z};
        std::memset(dynamicSharedMemory, 0xff, launch.sharedBytes); // NaN for floats
        runBlock(launch.block);
      }
}

} // namespace

void runBlocks(const Launch &launch, const std::function<void()> &thread) { runner().run(launch, thread); }

void synchronizeBlock() { runner().blockBarrier(); }
void synchronizeWarp(unsigned mask) { runner().warpBarrier(mask); }
std::uint64_t exchange(unsigned mask, std::uint64_t mine, int lane) { return runner().exchange(mask, mine, lane); }
unsigned ballot(unsigned mask, bool mine) { return runner().ballot(mask, mine); }
int laneOfThread() { return runner().laneOf(); }

} // namespace fsdpc::emulated
