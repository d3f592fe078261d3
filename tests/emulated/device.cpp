#include "tests/emulated/device.h"

#include "tests/emulated/block.h"
#include "tests/emulated/capture.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

namespace fsdpc::emulated {

namespace {

constexpr int operationsPerPoll = 64;
constexpr unsigned operationsPerWeights = 32; ///< how long streams keep their weights
/// Under one in so many seeds, a stream continues only if no stream of higher rank may, for the entire run. Work that
/// nothing waits for may then be arbitrarily late (Burckhardt et al., A Randomized Scheduler with Probabilistic
/// Guarantees of Finding Bugs, 2010).
constexpr unsigned seedsPerRanked = 4;
/// Under every other one of these, copies from the host are in flight until nothing else can continue, whatever their
/// stream's rank: a read that does not wait for one then finds nothing, even where the same bytes lay before.
constexpr unsigned seedsPerLateArrival = 8;
constexpr unsigned maxWeight = 1 << 16;

unsigned seedOfEnvironment() {
  const char *text = std::getenv("FSDPC_EMULATED_SEED");
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 0;
}

} // namespace

Device &Device::instance() {
  static Device device;
  return device;
}

Device::Device() { interleave({seedOfEnvironment(), std::getenv("FSDPC_EMULATED_EAGER") != nullptr}); }

void Device::interleave(const Interleaving &interleaving) {
  std::lock_guard lock(mutex);
  random.seed(interleaving.seed);
  isRanked = interleaving.seed % seedsPerRanked == 1;
  areArrivalsLate = interleaving.seed % seedsPerLateArrival == 1;
  for (Stream *stream : streams)
    rank(*stream);
  isEager = interleaving.isEager;
  untilNewWeights = 0;
}

void Device::rank(Stream &stream) { stream.weight = 1 + static_cast<unsigned>(random() % maxWeight); }

void Device::add(Stream &stream) {
  std::lock_guard lock(mutex);
  rank(stream);
  streams.push_back(&stream);
}

/// A stream that waits for this one at a meeting then waits forever, as for a rank that is gone.
void Device::remove(Stream &stream) {
  std::lock_guard lock(mutex);
  std::erase(streams, &stream);
  for (const Operation &operation : stream.queue)
    if (operation.meeting)
      std::replace(operation.meeting->streams.begin(), operation.meeting->streams.end(), &stream,
                   static_cast<Stream *>(nullptr));
}

bool Device::mayRun(const Stream &stream) const {
  if (stream.queue.empty())
    return false;
  const Operation &head = stream.queue.front();
  if (head.awaited)
    return head.awaited->isCompleted;
  if (!head.meeting)
    return true;
  return std::all_of(head.meeting->streams.begin(), head.meeting->streams.end(), [&](const Stream *member) {
    return member && !member->queue.empty() && member->queue.front().meeting == head.meeting;
  });
}

unsigned Device::urgency(const Stream &stream) const {
  return areArrivalsLate && stream.queue.front().isArrival ? 0 : stream.weight;
}

/// Runs one operation of a random stream, or of the one that is first; false if none may run.
bool Device::runOne() {
  if (!isRanked && untilNewWeights-- == 0) {
    untilNewWeights = operationsPerWeights;
    for (Stream *stream : streams)
      stream->weight = random() % 2 ? 1 : 50;
  }
  std::vector<Stream *> ready;
  unsigned total = 0;
  for (Stream *stream : streams)
    if (mayRun(*stream)) {
      ready.push_back(stream);
      total += stream->weight;
    }
  if (ready.empty())
    return false;
  unsigned chosen = static_cast<unsigned>(random() % total);
  auto stream = ready.begin();
  if (isRanked)
    stream = std::max_element(ready.begin(), ready.end(), [&](auto *a, auto *b) { return urgency(*a) < urgency(*b); });
  else
    for (; chosen >= (*stream)->weight; ++stream)
      chosen -= (*stream)->weight;
  const Operation operation = (*stream)->queue.front();
  if (operation.meeting) {
    for (Stream *member : operation.meeting->streams)
      member->queue.pop_front();
    operation.meeting->run();
  } else {
    (*stream)->queue.pop_front();
    if (operation.run)
      operation.run();
  }
  changed.notify_all();
  return true;
}

/// Runs between nothing and a lot, so that the host is sometimes far ahead of the device and sometimes just ahead.
/// Ranked streams continue only when the host waits: else the last of them would soon be done, too.
void Device::runSome() {
  if (isRanked)
    return;
  for (unsigned count = random() % 8 == 0 ? static_cast<unsigned>(random() % 64) : 0; count > 0 && runOne(); --count)
    ;
}

Operation Device::begunOn(Stream &stream, const Operation &operation) {
  return operation.join ? Operation{.meeting = operation.join(stream)} : operation;
}

void Device::goOn() {
  changed.notify_all();
  if (isEager)
    while (runOne())
      ;
  else
    runSome();
}

void Device::push(Stream &stream, const Operation &operation) {
  stream.queue.push_back(begunOn(stream, operation));
  goOn();
}

cudaError_t Device::enqueue(Stream &stream, Operation operation) {
  std::lock_guard lock(mutex);
  if (const auto &capture = stream.captured.capture) {
    capture->add(stream, std::move(operation));
    return capture->isValid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
  }
  push(stream, operation);
  return cudaSuccess;
}

cudaError_t Device::record(Event &event, Stream &stream, bool isExternal) {
  std::lock_guard lock(mutex);
  if (stream.captured.capture)
    return recordCaptured(event, stream, isExternal);
  if (isExternal)
    return cudaErrorInvalidValue;
  event.last = std::make_shared<Record>();
  event.isRecorded = true;
  event.captured = {};
  push(stream, completing(event.last));
  return cudaSuccess;
}

/// Waits for nothing if the event was never recorded, as in CUDA.
cudaError_t Device::wait(Stream &stream, Event &event) {
  std::lock_guard lock(mutex);
  if (stream.captured.capture || event.captured.capture)
    return waitCaptured(stream, event);
  push(stream, {.awaited = event.last});
  return cudaSuccess;
}

void Device::runUntil(const std::function<bool()> &done) {
  std::unique_lock lock(mutex);
  while (!done())
    if (!runOne())
      changed.wait(lock);
}

bool Device::poll(const std::function<bool()> &done) {
  std::unique_lock lock(mutex);
  for (int count = 0; count < operationsPerPoll && !done(); ++count)
    if (!runOne()) {
      changed.wait_for(lock, std::chrono::milliseconds(1));
      break;
    }
  return done();
}

cudaError_t enqueueKernel(Stream *stream, const Launch &launch, std::function<void()> thread) {
  return Device::instance().enqueue(*stream, {[launch, thread = std::move(thread)] { runBlocks(launch, thread); }});
}

} // namespace fsdpc::emulated

using fsdpc::emulated::Device, fsdpc::emulated::unlessCapturing;

namespace {

std::mutex allocationMutex;
std::map<void *, std::size_t> allocations;
/// The device memory of this rank, which frees what it has allocated.
thread_local std::size_t deviceBytes = 0;
constexpr std::size_t deviceTotalBytes = std::size_t{64} << 30;

/// NaN as a float, -1 as an integer.
constexpr int poison = 0xff;

constexpr std::size_t pageBytes = 4096;
constexpr std::size_t reservedBytes(std::size_t bytes) {
  return (bytes + pageBytes - 1) / pageBytes * pageBytes + 2 * pageBytes;
}

/// "allocation of 8192 bytes, changed 8100": the highest byte that has changed. Reported if FSDPC_EMULATED_ALLOCATIONS
/// is in the environment.
void reportChanged(const void *pointer, std::size_t bytes) {
  static const bool isWanted = std::getenv("FSDPC_EMULATED_ALLOCATIONS") != nullptr;
  if (!isWanted)
    return;
  std::size_t changed = bytes;
  while (changed > 0 && static_cast<const unsigned char *>(pointer)[changed - 1] == poison)
    --changed;
  std::printf("allocation of %zu bytes, changed %zu\n", bytes, changed);
}

cudaError_t allocate(void **pointer, std::size_t bytes) {
  if (const cudaError_t error = unlessCapturing())
    return error;
  // Between two pages that may not be touched; AddressSanitizer watches the rest of the last page.
  void *const reservation =
      mmap(nullptr, reservedBytes(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED)
    return cudaErrorMemoryAllocation;
  *pointer = static_cast<std::byte *>(reservation) + pageBytes;
  if (mprotect(*pointer, reservedBytes(bytes) - 2 * pageBytes, PROT_READ | PROT_WRITE) != 0)
    return cudaErrorMemoryAllocation;
  std::memset(*pointer, poison, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<std::byte *>(*pointer) + bytes, reservedBytes(bytes) - 2 * pageBytes - bytes);
  std::lock_guard lock(allocationMutex);
  allocations[*pointer] = bytes;
  return cudaSuccess;
}

cudaError_t release(void *pointer) {
  if (const cudaError_t error = unlessCapturing())
    return error;
  if (!pointer)
    return cudaSuccess;
  std::lock_guard lock(allocationMutex);
  const auto found = allocations.find(pointer);
  if (found == allocations.end())
    return cudaErrorInvalidValue;
  reportChanged(pointer, found->second);
  ASAN_UNPOISON_MEMORY_REGION(pointer, reservedBytes(found->second) - 2 * pageBytes);
  munmap(static_cast<std::byte *>(pointer) - pageBytes, reservedBytes(found->second));
  allocations.erase(found);
  return cudaSuccess;
}

} // namespace

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaSuccess: return "no error";
  case cudaErrorInvalidValue: return "invalid argument";
  case cudaErrorMemoryAllocation: return "out of memory";
  case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
  case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
  case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
  default: return "emulated device error";
  }
}
const char *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { return *count = 64, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor         ? 9
           : attribute == cudaDevAttrComputeCapabilityMinor       ? 0
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232448
                                                                  : 4;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t *freeBytes, std::size_t *totalBytes) {
  *totalBytes = deviceTotalBytes;
  *freeBytes = deviceTotalBytes - deviceBytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **pointer, std::size_t bytes) {
  const cudaError_t error = allocate(pointer, bytes);
  deviceBytes += error == cudaSuccess ? bytes : 0;
  return error;
}
cudaError_t cudaFree(void *pointer) {
  std::unique_lock lock(allocationMutex);
  const auto found = allocations.find(pointer);
  const std::size_t bytes = found == allocations.end() ? 0 : found->second;
  lock.unlock();
  const cudaError_t error = release(pointer);
  deviceBytes -= error == cudaSuccess ? bytes : 0;
  return error;
}
cudaError_t cudaMallocHost(void **pointer, std::size_t bytes) { return allocate(pointer, bytes); }
cudaError_t cudaFreeHost(void *pointer) { return release(pointer); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
  *stream = new fsdpc::emulated::Stream;
  Device::instance().add(**stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device::instance().remove(*stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = Device::instance().queryCaptured(*stream))
    return error;
  fsdpc::emulated::Event event;
  Device::instance().record(event, *stream);
  return cudaEventSynchronize(&event);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = Device::instance().queryCaptured(*stream))
    return error;
  return Device::instance().poll([&] { return stream->queue.empty(); }) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Device::instance().wait(*stream, *event);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = new fsdpc::emulated::Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Device::instance().record(*event, *stream);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return Device::instance().record(*event, *stream, flags == cudaEventRecordExternal);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = Device::instance().queryCaptured(*event))
    return error;
  if (const cudaError_t error = unlessCapturing())
    return error;
  return Device::instance().poll([&] { return event->last->isCompleted; }) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = Device::instance().queryCaptured(*event))
    return error;
  if (const cudaError_t error = unlessCapturing())
    return error;
  Device::instance().runUntil([&] { return event->last->isCompleted; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->captured.capture || end->captured.capture)
    return cudaErrorCapturedEvent;
  if (!begin->last->isCompleted || !end->last->isCompleted)
    return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->last->time - begin->last->time).count();
  return cudaSuccess;
}
/// A copy from the host's pinned memory is in flight for a while, during which nothing can be read there.
cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice)
    if (const cudaError_t error = cudaMemsetAsync(to, poison, bytes, stream))
      return error;
  fsdpc::emulated::Operation copy{[=] { std::memmove(to, from, bytes); }};
  copy.isArrival = kind == cudaMemcpyHostToDevice;
  return Device::instance().enqueue(*stream, copy);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return Device::instance().enqueue(*stream, {[=] { function(data); }});
}
cudaError_t cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t stream) {
  return Device::instance().enqueue(*stream, {[=] { std::memset(to, value, bytes); }});
}
