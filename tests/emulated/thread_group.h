// A HostGroup of ranks that are threads of one process.
#pragma once

#include "runtime/cuda/host_group.h"

#include <barrier>
#include <cstring>
#include <vector>

namespace fsdpc::rt {

/// State that the threads share to meet.
struct ThreadMeeting {
  explicit ThreadMeeting(int size) : size(size), parts(static_cast<std::size_t>(size)), barrier(size) {}
  const int size;
  std::vector<const void *> parts;
  std::barrier<> barrier;
};

class ThreadGroup final : public HostGroup {
public:
  ThreadGroup(ThreadMeeting &meeting, int rank) : meeting(meeting), myRank(rank) {}
  int rank() const override { return myRank; }
  int size() const override { return meeting.size; }
  void exchange(const void *mine, std::int64_t bytes, void *all) override {
    meeting.parts[static_cast<std::size_t>(myRank)] = mine;
    meeting.barrier.arrive_and_wait();
    for (int peer = 0; all && peer < size(); ++peer)
      std::memcpy(static_cast<std::byte *>(all) + peer * bytes, meeting.parts[static_cast<std::size_t>(peer)],
                  static_cast<std::size_t>(bytes));
    meeting.barrier.arrive_and_wait();
  }
  void gatherToRoot(const void *mine, std::int64_t bytes, void *all) override { exchange(mine, bytes, all); }
  void broadcast(void *data, std::int64_t bytes) override {
    meeting.parts[static_cast<std::size_t>(myRank)] = data;
    meeting.barrier.arrive_and_wait();
    if (myRank != 0)
      std::memcpy(data, meeting.parts[0], static_cast<std::size_t>(bytes));
    meeting.barrier.arrive_and_wait();
  }

private:
  ThreadMeeting &meeting;
  int myRank;
};

} // namespace fsdpc::rt
