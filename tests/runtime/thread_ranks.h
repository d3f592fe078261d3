// Ranks as threads of one process: each has a window, two streams and a SharedCommunicator over the same control block.
#pragma once

#include "runtime/cpu/cpu_context.h"
#include "runtime/cpu/shared_communicator.h"
#include "tests/runtime/tree_sum_definition.h"

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fsdpc::rt::test {

class ThreadRanks {
public:
  using Body = std::function<void(Context &)>;

  ThreadRanks(int ranks, Stream::Mode mode, std::int64_t windowBytes, CommunicatorOptions options = {})
      : ranks_(ranks), mode_(mode), options_(std::move(options)),
        control_(static_cast<std::size_t>(ControlBlock::bytesFor(ranks)) / sizeof(Line) + 1) {
    options_.oversubscribed = true;
    for (int rank = 0; rank < ranks; ++rank)
      windows_.emplace_back(static_cast<std::size_t>(windowBytes) / sizeof(Line) + 1);
  }

  /// Called with the rank and the sequence when a body has begun and has not read anything yet.
  std::function<void(int, std::uint64_t)> whenBegun;
  /// Options of one rank.
  std::function<void(int, CommunicatorOptions &)> adjust;

  ControlBlock &control() { return *ControlBlock::at(control_.data()); }

  /// Runs `body` on every rank. failures[r] is the error that rank r threw, "" if it returned.
  void run(const Body &body) {
    failures.assign(ranks_, "");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([&, rank] { runRank(rank, body); });
    for (std::thread &thread : threads)
      thread.join();
  }

  std::vector<std::string> failures;

private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };

  void runRank(int rank, const Body &body) {
    CommunicatorOptions options = options_;
    if (adjust)
      adjust(rank, options);
    if (whenBegun)
      options.whenBegun = [this, rank](std::uint64_t sequence) { whenBegun(rank, sequence); };
    std::vector<const std::byte *> addresses;
    for (const auto &window : windows_)
      addresses.push_back(window.data()->bytes);
    SharedCommunicator communicator(rank, control(), addresses, options);
    const auto stream = std::make_unique<Stream>(mode_, true);
    const auto reduceStream = std::make_unique<Stream>(mode_, true);
    Context context;
    context.windowArena = windows_[rank].data()->bytes;
    context.rank = rank;
    context.worldSize = ranks_;
    CpuContext own;
    own.communicator = &communicator;
    own.commStream = stream.get();
    own.reduceStream = reduceStream.get();
    context.target = &own;
    try {
      body(context);
    } catch (const std::exception &error) {
      failures[rank] = error.what();
    }
  }

  int ranks_;
  Stream::Mode mode_;
  CommunicatorOptions options_;
  std::vector<Line> control_;
  std::vector<std::vector<Line>> windows_;
};

/// What rank `rank` contributes at `index`: numbers whose f32 sum depends on the order of additions.
inline float contribution(int rank, std::int64_t index) {
  const auto mixed =
      static_cast<std::uint32_t>(index * 2654435761u) ^ static_cast<std::uint32_t>((rank + 1) * 40503u * 65537u);
  const int exponent = static_cast<int>(mixed % 13) - 6;
  return (static_cast<float>(mixed >> 8) / 16777216.0f - 0.5f) *
         static_cast<float>(exponent < 0 ? 1.0 / (1 << -exponent) : 1 << exponent);
}

inline float expectedSum(int ranks, std::int64_t index) {
  std::vector<float> values;
  for (int rank = 0; rank < ranks; ++rank)
    values.push_back(contribution(rank, index));
  return treeSumOf(values, 0, values.size());
}

} // namespace fsdpc::rt::test
