// Finds the missing ranks when a collective between hosts does not complete.
//
// MPI does not report which rank it waits for. So a rank whose time limit has passed queries every other rank with a
// small message. A rank that itself waits in a collective answers immediately. A rank that computes, hangs, has ended
// or cannot be reached does not. Every wait calls `answer` repeatedly.
#pragma once

#include "runtime/cpu/mpi_library.h"

#include <mutex>
#include <vector>

namespace fsdpc::rt {

class RollCall {
public:
  /// `communicator`: an MPI handle of its own, over all ranks.
  RollCall(MPI_Comm communicator, int rank, int worldSize);

  /// Answers queries of other ranks that have arrived. Any thread may call it.
  void answer();

  /// Returns the ranks that answer within `waitSeconds`, including this one. Answers other ranks meanwhile. Threads
  /// that ask at the same time ask one after another.
  std::vector<bool> ask(double waitSeconds);

private:
  void takeAnswers(std::vector<bool> &present);

  std::mutex asking_;

  MPI_Comm communicator_;
  int rank_;
  int worldSize_;
};

} // namespace fsdpc::rt
