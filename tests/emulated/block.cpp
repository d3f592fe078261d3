#include "tests/emulated/block.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

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

/// What AddressSanitizer must know about a stack before something else runs on it. Empty in other builds.
struct Stack {
  const void *bottom = nullptr;
  std::size_t bytes = 0;
  void *frames = nullptr; ///< the sanitizer's own, kept while another stack runs

  void leaveFor(const Stack &next) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&frames, next.bottom, next.bytes);
#endif
  }
  /// `last` receives the location of the stack that ran before.
  void enterFrom(Stack &last) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(frames, &last.bottom, &last.bytes);
#endif
  }
};

/// A fiber that runs one thread after another, so a thread without barriers costs two switches.
struct Lane {
  context::fiber inside;  ///< resumes the thread
  context::fiber outside; ///< back to the runner
  Stack stack;
  uint3 index{};
  State state = State::ended;
  int phase = 0;        ///< exchanges so far, modulo 2
  unsigned barrier = 0; ///< the kernel's barrier that it waits at
  bool vote = false;    ///< what it brings there
};

struct Warp {
  int threads = 0, arrived = 0;
  std::uint64_t slots[2][warpSize] = {};
};

class Runner {
public:
  void run(const Launch &launch, const std::function<void()> &thread);
  /// Whether any thread brought true.
  bool blockBarrier(unsigned barrier, bool vote);
  void warpBarrier(unsigned mask);
  std::uint64_t exchange(unsigned mask, std::uint64_t mine, int lane);
  unsigned ballot(unsigned mask, bool mine);
  int laneOf() const { return current % warpSize; }

private:
  void prepare(int threads);
  void runBlock(const dim3 &dimensions);
  void resume(int index);
  void leave(State state);
  void runWarps();
  void resumeLanes(int first);
  bool releaseBlock();
  bool releaseWarp(int first);
  void arrive(unsigned mask);

  const std::function<void()> *body = nullptr;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<Warp> warps;
  bool anyVote = false; ///< at the last barrier of the block
  context::pooled_fixedsize_stack stacks{stackBytes};
  Stack callers; ///< the stack of the host thread that runs the block
  int current = 0, threads = 0;
  std::minstd_rand random; ///< chooses the directions in which blocks, warps and lanes run
};

Runner &runner() {
  // One block runs at a time, whichever host thread drives the device. Never destroyed: its fibers never end.
  static Runner &instance = *new Runner;
  return instance;
}

void Runner::prepare(int count) {
  threads = count;
  warps.assign(static_cast<std::size_t>((count + warpSize - 1) / warpSize), {});
  while (static_cast<int>(lanes.size()) < count) {
    lanes.push_back(std::make_unique<Lane>());
    Lane &lane = *lanes.back();
    const context::stack_context stack = stacks.allocate();
    lane.stack = {static_cast<std::byte *>(stack.sp) - stack.size, stack.size};
    const context::preallocated whole(stack.sp, stack.size, stack);
    lane.inside = context::fiber(std::allocator_arg, whole, stacks, [this, &lane](context::fiber &&outside) {
      lane.stack.enterFrom(callers);
      for (lane.outside = std::move(outside);;) {
        (*body)();
        leave(State::ended);
      }
      return std::move(lane.outside);
    });
  }
}

/// Called from inside a thread: switches to the runner until this thread may continue.
void Runner::leave(State state) {
  Lane &lane = *lanes[static_cast<std::size_t>(current)];
  lane.state = state;
  lane.stack.leaveFor(callers);
  lane.outside = std::move(lane.outside).resume();
  lane.stack.enterFrom(callers);
}

void Runner::resume(int index) {
  Lane &lane = *lanes[static_cast<std::size_t>(index)];
  current = index;
  threadIdx = lane.index;
  lane.state = State::runnable;
  callers.leaveFor(lane.stack);
  lane.inside = std::move(lane.inside).resume();
  callers.enterFrom(lane.stack);
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
  do
    runWarps();
  while (releaseBlock());
  for (int i = 0; i < threads; ++i)
    if (lanes[static_cast<std::size_t>(i)]->state != State::ended)
      fail("threads of a block wait at different barriers, or for threads that have returned");
}

/// Runs each warp as far as it gets without the others, so that a thread that relies on another warp without a barrier
/// runs too early or too late.
void Runner::runWarps() {
  const bool isBackward = random() % 2 == 1;
  const int count = static_cast<int>(warps.size());
  for (int i = 0; i < count; ++i) {
    const int first = (isBackward ? count - 1 - i : i) * warpSize;
    do
      resumeLanes(first);
    while (releaseWarp(first));
  }
}

/// Runs the threads of the warp that may continue, each up to its next barrier.
void Runner::resumeLanes(int first) {
  const bool isBackward = random() % 2 == 1;
  const int count = warps[static_cast<std::size_t>(first / warpSize)].threads;
  for (int i = 0; i < count; ++i) {
    const int index = first + (isBackward ? count - 1 - i : i);
    if (lanes[static_cast<std::size_t>(index)]->state == State::runnable)
      resume(index);
  }
}

/// Succeeds if all threads wait at the same barrier.
bool Runner::releaseBlock() {
  const auto end = lanes.begin() + threads;
  const unsigned barrier = lanes[0]->barrier;
  if (!std::all_of(lanes.begin(), end, [&](const std::unique_ptr<Lane> &lane) {
        return lane->state == State::atBlockBarrier && lane->barrier == barrier;
      }))
    return false;
  anyVote = std::any_of(lanes.begin(), end, [](const std::unique_ptr<Lane> &lane) { return lane->vote; });
  std::for_each(lanes.begin(), end, [](const std::unique_ptr<Lane> &lane) { lane->state = State::runnable; });
  return true;
}

/// Succeeds if all threads of the warp wait for each other.
bool Runner::releaseWarp(int first) {
  Warp &warp = warps[static_cast<std::size_t>(first / warpSize)];
  if (warp.arrived != warp.threads)
    return false;
  warp.arrived = 0;
  for (int i = first; i < first + warp.threads; ++i)
    lanes[static_cast<std::size_t>(i)]->state = State::runnable;
  return true;
}

bool Runner::blockBarrier(unsigned barrier, bool vote) {
  Lane &self = *lanes[static_cast<std::size_t>(current)];
  self.barrier = barrier;
  self.vote = vote;
  leave(State::atBlockBarrier);
  return anyVote;
}

void Runner::warpBarrier(unsigned mask) {
  if (mask != 0xffffffffu)
    fail("only whole warps are emulated");
  ++warps[static_cast<std::size_t>(current / warpSize)].arrived;
  leave(State::atWarpBarrier);
}

std::uint64_t Runner::exchange(unsigned mask, std::uint64_t mine, int lane) {
  Lane &self = *lanes[static_cast<std::size_t>(current)];
  Warp &warp = warps[static_cast<std::size_t>(current / warpSize)];
  // Two sets of slots: a lane that is ahead writes the next exchange while others still read this one.
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
  // Exactly this size: AddressSanitizer watches the end.
  const auto shared = std::make_unique_for_overwrite<std::byte[]>(launch.sharedBytes);
  dynamicSharedMemory = shared.get();
  const bool isBackward = random() % 2 == 1;
  const unsigned blocks = launch.grid.x * launch.grid.y * launch.grid.z;
  for (unsigned i = 0; i < blocks; ++i) {
    const unsigned block = isBackward ? blocks - 1 - i : i, row = block / launch.grid.x;
    blockIdx = {block % launch.grid.x, row % launch.grid.y, row / launch.grid.y};
    std::memset(dynamicSharedMemory, 0xff, launch.sharedBytes); // NaN for floats
    runBlock(launch.block);
  }
}

} // namespace

void runBlocks(const Launch &launch, const std::function<void()> &thread) { runner().run(launch, thread); }

bool synchronizeBlock(unsigned barrier, bool vote) { return runner().blockBarrier(barrier, vote); }
void synchronizeWarp(unsigned mask) { runner().warpBarrier(mask); }
std::uint64_t exchange(unsigned mask, std::uint64_t mine, int lane) { return runner().exchange(mask, mine, lane); }
unsigned ballot(unsigned mask, bool mine) { return runner().ballot(mask, mine); }
int laneOfThread() { return runner().laneOf(); }

} // namespace fsdpc::emulated
