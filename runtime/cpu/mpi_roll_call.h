// Who is missing, when a collective of the plain MPI path does not complete.
//
// MPI does not tell which rank a collective waits for. So a rank whose time is up asks every other rank by a small
// message; a rank that itself waits in a collective answers at once, and a rank that computes, hangs or is gone does
// not. Every wait on this path calls `answer` now and then.
#pragma once

#include "runtime/cpu/mpi_library.h"

#include <cstdint>
#include <vector>

namespace fsdpc::rt {

class RollCall {
public:
  /// `communicator` is the library's handle that the collectives use too; point-to-point messages do not mix with
  /// those.
  RollCall(MPI_Comm communicator, int rank, int worldSize);

  /// Answers questions of other ranks that have arrived.
  void answer();

  /// Ranks that answer within `waitSeconds`, this one included, answering others meanwhile.
  std::vector<bool> ask(double waitSeconds);

private:
  void takeAnswers(std::vector<bool> &present);

  MPI_Comm communicator_;
  int rank_;
  int worldSize_;
};

} // namespace fsdpc::rt
