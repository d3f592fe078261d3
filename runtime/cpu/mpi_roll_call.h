// Finds the missing ranks when a collective of the plain MPI path does not complete.
//
// MPI does not report which rank a collective waits for. So a rank whose time limit has passed queries every other rank
// with a small message. A rank that itself waits in a collective answers immediately. A rank that computes, hangs or
// has ended does not. Every wait on this path calls `answer` repeatedly.
#pragma once

#include "runtime/cpu/mpi_library.h"

#include <cstdint>
#include <vector>

namespace fsdpc::rt {

class RollCall {
public:
  /// `communicator` is the MPI handle that the collectives also use; point-to-point messages do not mix with
  /// collectives.
  RollCall(MPI_Comm communicator, int rank, int worldSize);

  /// Answers queries of other ranks that have arrived.
  void answer();

  /// Returns the ranks that answer within `waitSeconds`, including this one. Answers other ranks meanwhile.
  std::vector<bool> ask(double waitSeconds);

private:
  void takeAnswers(std::vector<bool> &present);

  MPI_Comm communicator_;
  int rank_;
  int worldSize_;
};

} // namespace fsdpc::rt
