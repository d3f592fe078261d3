// Ranks as threads that share the emulated device.
#pragma once

#include <nccl.h>

#include <functional>
#include <thread>
#include <vector>

namespace fsdpc::emulated {

/// One rank, with a communicator of all ranks and a stream.
struct Rank {
  int rank = 0, size = 1;
  ncclComm_t world = nullptr;
  cudaStream_t stream = nullptr;
};

/// Calls `body` for every rank at the same time, then waits for its stream.
inline void runRanks(int size, const std::function<void(const Rank &)> &body) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::thread> threads;
  for (int number = 0; number < size; ++number)
    threads.emplace_back([&, number] {
      Rank rank{number, size};
      ncclCommInitRank(&rank.world, size, id, number);
      cudaStreamCreateWithPriority(&rank.stream, cudaStreamNonBlocking, 0);
      body(rank);
      cudaStreamSynchronize(rank.stream);
      cudaStreamDestroy(rank.stream);
      ncclCommDestroy(rank.world);
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace fsdpc::emulated
