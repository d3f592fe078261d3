#include "runtime/cpu/mpi_roll_call.h"

#include <chrono>
#include <thread>

namespace fsdpc::rt {
namespace {

constexpr int questionTag = 1;
constexpr int answerTag = 2;

/// Posts an empty message; only the tag matters. It is never waited for, because the run ends soon after.
void post(MPI_Comm communicator, int rank, int tag) {
  MPI_Request request;
  MPI_Isend(nullptr, 0, MPI_BYTE, rank, tag, communicator, &request);
  MPI_Request_free(&request);
}

/// Receives one message with this tag and returns its sender; -1 if there is none. A matched probe, because several
/// threads may be here.
int take(MPI_Comm communicator, int tag) {
  int arrived = 0;
  MPI_Message message;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, tag, communicator, &arrived, &message, &status);
  if (!arrived)
    return -1;
  MPI_Mrecv(nullptr, 0, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  return status.MPI_SOURCE;
}

} // namespace

RollCall::RollCall(MPI_Comm communicator, int rank, int worldSize)
    : communicator_(communicator), rank_(rank), worldSize_(worldSize) {}

void RollCall::answer() {
  for (int rank; (rank = take(communicator_, questionTag)) >= 0;)
    post(communicator_, rank, answerTag);
}

void RollCall::takeAnswers(std::vector<bool> &present) {
  for (int rank; (rank = take(communicator_, answerTag)) >= 0;)
    present[rank] = true;
}

std::vector<bool> RollCall::ask(double waitSeconds) {
  const std::lock_guard held(asking_);
  std::vector<bool> present(worldSize_, false);
  present[rank_] = true;
  for (int rank = 0; rank < worldSize_; ++rank)
    if (rank != rank_)
      post(communicator_, rank, questionTag);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(waitSeconds);
  while (std::chrono::steady_clock::now() < until) {
    answer();
    takeAnswers(present);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return present;
}

} // namespace fsdpc::rt
