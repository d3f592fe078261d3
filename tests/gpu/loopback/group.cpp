#include "tests/gpu/loopback/group.h"

#include "tests/gpu/loopback/sums.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace fsdpc::loopback {

namespace {

/// How long one member waits for another on the host. A program that has lost a rank ends well before.
constexpr auto patience = std::chrono::minutes(5);

/// Enqueues the copies of a gather or an exchange.
cudaError_t enqueueMoves(const Call &call, const std::vector<Part> &parts, cudaStream_t stream) {
  const std::size_t bytes = call.count * bytesOf(call.type);
  for (std::size_t member = 0; member < parts.size(); ++member)
    for (std::size_t peer = 0; peer < parts.size(); ++peer) {
      const std::byte *const from = parts[peer].send + (call.kind == Kind::exchange ? member * bytes : 0);
      std::byte *const to = parts[member].receive + peer * bytes;
      if (to == from)
        continue;
      if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream))
        return error;
    }
  return cudaSuccess;
}

/// A slice of the sum for each member, or the full sum for all of them.
bool enqueueSums(const Call &call, const std::vector<Part> &parts, cudaStream_t stream) {
  const std::size_t bytes = call.count * bytesOf(call.type), shares = call.kind == Kind::sum ? 1 : parts.size();
  for (std::size_t share = 0; share < shares; ++share) {
    std::vector<const std::byte *> senders;
    std::vector<std::byte *> receivers;
    for (std::size_t member = 0; member < parts.size(); ++member) {
      senders.push_back(parts[member].send + share * bytes);
      if (call.kind == Kind::sum || member == share)
        receivers.push_back(parts[member].receive);
    }
    if (!enqueueSum(stream, senders, receivers, call.count, call.type))
      return false;
  }
  return true;
}

} // namespace

Group::Group(int size) : parts(static_cast<std::size_t>(size)), arrived(static_cast<std::size_t>(size)) {
  cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  for (cudaEvent_t &event : arrived)
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
}

Group::~Group() {
  cudaEventDestroy(done);
  for (cudaEvent_t event : arrived)
    cudaEventDestroy(event);
}

/// The last member to arrive ends the meeting and does not wait. Returns false if some member has not arrived.
bool Group::meet(std::unique_lock<std::mutex> &lock) {
  if (++present == size()) {
    present = 0;
    ++round;
    changed.notify_all();
    return true;
  }
  return changed.wait_for(lock, patience, [&, mine = round] { return round != mine; });
}

void Group::join() {
  std::unique_lock lock(mutex);
  meet(lock);
}

std::pair<std::shared_ptr<Group>, int> Group::split(int rank, int number, int color) {
  std::unique_lock lock(mutex);
  colors[number][rank] = color;
  meet(lock);
  int size = 0, newRank = 0;
  for (const auto &[member, memberColor] : colors[number])
    if (memberColor == color) {
      size += 1;
      newRank += member < rank;
    }
  if (color < 0)
    return {nullptr, 0};
  std::shared_ptr<Group> &child = children[{number, color}];
  if (!child)
    child = std::make_shared<Group>(size);
  return {child, newRank};
}

ncclResult_t Group::enqueue(cudaStream_t stream) {
  for (cudaEvent_t event : arrived)
    if (cudaStreamWaitEvent(stream, event, 0) != cudaSuccess)
      return ncclUnhandledCudaError;
  if (call.kind == Kind::gather || call.kind == Kind::exchange) {
    if (enqueueMoves(call, parts, stream) != cudaSuccess)
      return ncclUnhandledCudaError;
  } else if (!enqueueSums(call, parts, stream)) {
    return ncclInvalidArgument;
  }
  return cudaEventRecord(done, stream) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t Group::perform(const Call &mine, int rank, const Part &part, cudaStream_t stream) {
  const auto index = static_cast<std::size_t>(rank);
  if (cudaEventRecord(arrived[index], stream) != cudaSuccess)
    return ncclUnhandledCudaError;
  std::unique_lock lock(mutex);
  if (present == 0)
    call = mine;
  if (!(call == mine)) {
    std::fputs("loopback transport: ranks call different collectives\n", stderr);
    std::abort();
  }
  parts[index] = part;
  if (present + 1 == size())
    result = enqueue(stream);
  if (!meet(lock))
    return ncclSystemError;
  // `done` is recorded again only after this member, too, has reached the next collective.
  if (result == ncclSuccess && cudaStreamWaitEvent(stream, done, 0) != cudaSuccess)
    return ncclUnhandledCudaError;
  return result;
}

} // namespace fsdpc::loopback
