#include "ir/eval/ranks.h"

namespace fsdpc {

std::vector<HostTensor> Rendezvous::exchange(int64_t rank, std::string name, const HostTensor &mine) {
  std::unique_lock lock(mutex);
  if (!hasFailed) {
    Arrival &arrival = arrivals[rank];
    arrival.here = true;
    arrival.name = std::move(name);
    arrival.tensor = mine;
    ++present;
    uint64_t entered = round;
    if (present + gone == rankCount())
      completeLocked();
    wake.wait(lock, [&] { return round != entered || hasFailed; });
    // The round may have completed successfully before another rank failed. Its result is still valid.
    if (round != entered)
      return *delivered;
  }
  return std::vector<HostTensor>(arrivals.size(), mine);
}

void Rendezvous::completeLocked() {
  int64_t first = 0;
  while (!arrivals[first].here)
    ++first;
  for (int64_t rank = 0; rank < rankCount(); ++rank) {
    const Arrival &a = arrivals[first], &b = arrivals[rank];
    if (!b.here || a.name != b.name || !(a.tensor.type == b.tensor.type))
      return failLocked("ranks issue different collectives: " + describeLocked(first) + ", " + describeLocked(rank));
  }
  auto all = std::make_shared<std::vector<HostTensor>>();
  for (Arrival &arrival : arrivals) {
    all->push_back(std::move(arrival.tensor));
    arrival.here = false;
  }
  delivered = std::move(all);
  present = 0;
  ++round;
  wake.notify_all();
}

std::string Rendezvous::describeLocked(int64_t rank) const {
  std::string text = "rank " + std::to_string(rank) + " ";
  const Arrival &arrival = arrivals[rank];
  return text + (arrival.here ? "is at " + arrival.name + " with " + toString(arrival.tensor.type) : "has finished");
}

void Rendezvous::leave(int64_t rank) {
  std::lock_guard lock(mutex);
  arrivals[rank].left = true;
  ++gone;
  if (present > 0 && present + gone == rankCount() && !hasFailed)
    completeLocked();
}

void Rendezvous::fail(std::string message) {
  std::lock_guard lock(mutex);
  failLocked(std::move(message));
}

void Rendezvous::failLocked(std::string message) {
  if (!hasFailed)
    fault = std::move(message);
  hasFailed = true;
  wake.notify_all();
}

bool Rendezvous::failed() const {
  std::lock_guard lock(mutex);
  return hasFailed;
}

llvm::Error Rendezvous::takeError() {
  std::lock_guard lock(mutex);
  if (!hasFailed)
    return llvm::Error::success();
  return llvm::createStringError(fault);
}

} // namespace fsdpc
