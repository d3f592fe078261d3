#include <nccl.h>

#include "runtime/common/float16.h"
#include "tests/emulated/device.h"
#include "tests/emulated/nccl_bytes.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace fsdpc::emulated {

namespace {

/// One member's contribution to a collective.
struct Part {
  const std::byte *send = nullptr;
  std::byte *receive = nullptr;
};

enum class Kind { gather, scatterSum, sum, exchange };

struct Collective {
  Kind kind{};
  std::size_t count = 0;
  ncclDataType_t type{};
  std::vector<Part> parts;
  std::shared_ptr<Meeting> meeting;
  bool operator==(const Collective &other) const {
    return kind == other.kind && count == other.count && type == other.type;
  }
};

} // namespace

/// Ranks that communicate. A communicator is a member of a group.
struct Group {
  explicit Group(int size) : size(size), starts(static_cast<std::size_t>(size)) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  std::map<std::uint64_t, Collective> collectives; ///< under the device's lock
  std::vector<std::byte *> starts;                 ///< of the registered windows
  std::size_t windowBytes = 0;
  std::map<int, std::map<int, int>> colors;                       ///< by split and parent's rank
  std::map<std::pair<int, int>, std::shared_ptr<Group>> children; ///< by split and colour
};

struct Communicator {
  std::shared_ptr<Group> group;
  int rank = 0;
  std::uint64_t sequence = 0;
  int splits = 0;
};

namespace {

[[noreturn]] void fail(const char *what) {
  std::fprintf(stderr, "emulated NCCL: %s\n", what);
  std::abort();
}

std::mutex groupsMutex;
std::map<std::string, std::shared_ptr<Group>> groups;

template <class T>
void addAll(const Collective &collective, std::size_t first, std::byte *to) {
  std::vector<T> sums(collective.count);
  for (std::size_t i = 0; i < collective.count; ++i) {
    T sum{};
    for (const Part &part : collective.parts)
      sum += reinterpret_cast<const T *>(part.send)[first + i];
    sums[i] = sum;
  }
  std::memcpy(to, sums.data(), sums.size() * sizeof(T));
}

template <class Half>
void addHalves(const Collective &collective, std::size_t first, std::byte *to) {
  for (std::size_t i = 0; i < collective.count; ++i) {
    float sum = 0;
    for (const Part &part : collective.parts)
      sum += static_cast<float>(reinterpret_cast<const Half *>(part.send)[first + i]);
    reinterpret_cast<Half *>(to)[i] = Half(sum);
  }
}

void addElements(const Collective &collective, std::size_t first, std::byte *to) {
  switch (collective.type) {
  case ncclFloat32: return addAll<float>(collective, first, to);
  case ncclFloat64: return addAll<double>(collective, first, to);
  case ncclInt32: return addAll<std::int32_t>(collective, first, to);
  case ncclInt64: return addAll<std::int64_t>(collective, first, to);
  case ncclBfloat16: return addHalves<fsdpc::rt::Bfloat16>(collective, first, to);
  case ncclFloat16: return addHalves<fsdpc::rt::Float16>(collective, first, to);
  default: fail("sums of this type");
  }
}

void perform(const Collective &collective) {
  const std::size_t members = collective.parts.size(), bytes = collective.count * bytesOf(collective.type);
  std::vector<std::byte> sum(collective.kind == Kind::sum ? bytes : 0);
  if (collective.kind == Kind::sum)
    addElements(collective, 0, sum.data());
  for (std::size_t member = 0; member < members; ++member) {
    std::byte *to = collective.parts[member].receive;
    for (std::size_t peer = 0; peer < members; ++peer) {
      const std::byte *from = collective.parts[peer].send;
      if (collective.kind == Kind::gather && to + peer * bytes != from)
        std::memcpy(to + peer * bytes, from, bytes);
      if (collective.kind == Kind::exchange)
        std::memcpy(to + peer * bytes, from + member * bytes, bytes);
    }
    if (collective.kind == Kind::scatterSum)
      addElements(collective, member * collective.count, to);
    if (collective.kind == Kind::sum)
      std::memcpy(to, sum.data(), bytes);
  }
}

std::size_t sentBytes(const Collective &collective, int members) {
  const bool toAll = collective.kind == Kind::scatterSum || collective.kind == Kind::exchange;
  return collective.count * bytesOf(collective.type) * static_cast<std::size_t>(toAll ? members : 1);
}

std::size_t receivedBytes(const Collective &collective, int members) {
  const bool fromAll = collective.kind == Kind::gather || collective.kind == Kind::exchange;
  return collective.count * bytesOf(collective.type) * static_cast<std::size_t>(fromAll ? members : 1);
}

/// The offset of a buffer that is entirely inside the member's window; -1 if it is in none.
std::ptrdiff_t offsetInWindow(const Group &group, std::size_t member, const std::byte *buffer, std::size_t bytes) {
  const std::ptrdiff_t begin = group.windowBytes == 0 ? -1 : buffer - group.starts[member];
  if (begin < 0 || static_cast<std::size_t>(begin) >= group.windowBytes)
    return -1;
  if (static_cast<std::size_t>(begin) + bytes > group.windowBytes)
    fail("a buffer that leaves the registered window");
  return begin;
}

/// Symmetric windows: a buffer is at the same offset of every member's window, or in no window.
void checkWindows(const Group &group, const Collective &collective) {
  const std::size_t sent = sentBytes(collective, group.size), received = receivedBytes(collective, group.size);
  const Part &first = collective.parts[0];
  for (std::size_t member = 0; member < collective.parts.size(); ++member) {
    const Part &part = collective.parts[member];
    if (offsetInWindow(group, member, part.send, sent) != offsetInWindow(group, 0, first.send, sent) ||
        offsetInWindow(group, member, part.receive, received) != offsetInWindow(group, 0, first.receive, received))
      fail("buffers at different offsets of a symmetric window");
  }
}

/// A collective may write its result at any time after it begins. The part that is also sent is kept.
void spoil(std::byte *receive, std::size_t bytes, const std::byte *send, std::size_t sentBytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (receive + i < send || receive + i >= send + sentBytes)
      receive[i] = std::byte{0xff};
}

/// FSDPC_EMULATED_STALLED: this collective of every communicator begins and never ends. 0: all end.
std::uint64_t stalledSequence() {
  const char *text = std::getenv("FSDPC_EMULATED_STALLED");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

ncclResult_t start(const Collective &wanted, const void *send, void *receive, ncclComm_t communicator,
                   cudaStream_t stream) {
  Group &group = *communicator->group;
  const std::size_t rank = static_cast<std::size_t>(communicator->rank);
  const cudaError_t spoiled = Device::instance().enqueue(*stream, {[=, &group] {
    const std::size_t sent = sentBytes(wanted, group.size), received = receivedBytes(wanted, group.size);
    std::byte *const to = static_cast<std::byte *>(receive);
    const std::byte *const from = static_cast<const std::byte *>(send);
    offsetInWindow(group, rank, from, sent);
    offsetInWindow(group, rank, to, received);
    spoil(to, received, from, sent);
  }});
  // In a graph, each launch has a new one.
  const cudaError_t started = Device::instance().enqueue(*stream, {.join = [=, &group](Stream &joining) {
    const std::uint64_t sequence = ++communicator->sequence;
    auto [entry, isNew] = group.collectives.try_emplace(sequence, wanted);
    Collective &collective = entry->second;
    if (isNew) {
      collective.parts.resize(static_cast<std::size_t>(group.size));
      collective.meeting = std::make_shared<Meeting>();
      // A collective that never ends waits for a stream that does not exist.
      collective.meeting->streams.resize(static_cast<std::size_t>(group.size) + (sequence == stalledSequence()));
      collective.meeting->run = [&group, sequence] {
        checkWindows(group, group.collectives.at(sequence));
        perform(group.collectives.at(sequence));
        group.collectives.erase(sequence);
      };
    }
    if (!(collective == wanted))
      fail("ranks call different collectives");
    collective.parts[rank] = {static_cast<const std::byte *>(send), static_cast<std::byte *>(receive)};
    collective.meeting->streams[rank] = &joining;
    return collective.meeting;
  }});
  return spoiled == cudaSuccess && started == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

void join(Group &group) {
  std::unique_lock lock(group.mutex);
  ++group.joined;
  group.changed.notify_all();
  group.changed.wait(lock, [&] { return group.joined >= group.size; });
}

} // namespace

} // namespace fsdpc::emulated

using namespace fsdpc::emulated;

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "emulated NCCL error";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetVersion(int *version) { return *version = 22809, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static std::atomic<int> next{0};
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "emulated %d", ++next);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank) {
  std::shared_ptr<Group> group;
  {
    std::lock_guard lock(groupsMutex);
    std::shared_ptr<Group> &entry = groups[id.internal];
    if (!entry)
      entry = std::make_shared<Group>(ranks);
    group = entry;
  }
  join(*group);
  *communicator = new Communicator{group, rank};
  return ncclSuccess;
}

/// Members of the new communicator keep the order of the parent's ranks: `key` is the parent's rank.
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *communicator, ncclConfig_t *) {
  if (key != parent->rank)
    fail("a split that reorders ranks");
  Group &group = *parent->group;
  const int split = ++parent->splits;
  std::unique_lock lock(group.mutex);
  std::map<int, int> &colors = group.colors[split];
  colors[key] = color;
  group.changed.notify_all();
  group.changed.wait(lock, [&] { return static_cast<int>(colors.size()) == group.size; });
  int size = 0, rank = 0;
  for (const auto &[member, memberColor] : colors)
    if (memberColor == color) {
      size += 1;
      rank += member < key;
    }
  std::shared_ptr<Group> &child = group.children[{split, color}];
  if (!child)
    child = std::make_shared<Group>(size);
  const std::shared_ptr<Group> mine = child;
  lock.unlock();
  join(*mine);
  *communicator = color == NCCL_SPLIT_NOCOLOR ? nullptr : new Communicator{mine, rank};
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t communicator, int *count) {
  return *count = communicator->group->size, ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}
/// Its operations may still be in streams; they are dropped at the end of the process.
ncclResult_t ncclCommAbort(ncclComm_t) {
  return std::fputs("emulated NCCL: aborted a communicator\n", stderr), ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *error) { return *error = ncclSuccess, ncclSuccess; }
ncclResult_t ncclMemAlloc(void **pointer, std::size_t bytes) {
  return cudaMalloc(pointer, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void *pointer) {
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t communicator, void *buffer, std::size_t bytes, ncclWindow_t *window,
                                    int) {
  if (!buffer || bytes == 0)
    return ncclInvalidArgument;
  Group &group = *communicator->group;
  std::lock_guard lock(group.mutex);
  group.starts[static_cast<std::size_t>(communicator->rank)] = static_cast<std::byte *>(buffer);
  group.windowBytes = bytes;
  *window = reinterpret_cast<ncclWindow_t>(buffer);
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }

ncclResult_t ncclAllGather(const void *send, void *receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return start({Kind::gather, count, type, {}, {}}, send, receive, communicator, stream);
}
ncclResult_t ncclReduceScatter(const void *send, void *receive, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t communicator, cudaStream_t stream) {
  return start({Kind::scatterSum, count, type, {}, {}}, send, receive, communicator, stream);
}
ncclResult_t ncclAllReduce(const void *send, void *receive, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t communicator, cudaStream_t stream) {
  return start({Kind::sum, count, type, {}, {}}, send, receive, communicator, stream);
}
ncclResult_t ncclAlltoAll(const void *send, void *receive, std::size_t count, ncclDataType_t type,
                          ncclComm_t communicator, cudaStream_t stream) {
  return start({Kind::exchange, count, type, {}, {}}, send, receive, communicator, stream);
}
