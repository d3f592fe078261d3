// One rank's GPU: streams, events, and what CUDA calls report.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/program.h"

#include <cuda_runtime.h>

#include <array>
#include <optional>
#include <vector>

// Before each variable of an emitted program: ranks that are threads of one process each have their own.
#if defined(FSDPC_RANKS_ARE_THREADS)
#define PER_RANK thread_local
#else
#define PER_RANK
#endif

namespace fsdpc::rt {

class DeviceProgress;
class NcclCommunicators;
class StepTape;
class Tuner;

/// Throws Failure{internal} naming `what` unless `error` is cudaSuccess; out of memory is Failure{memory}.
void checkCuda(cudaError_t error, const char *what);

/// A moment of a stream that others can wait for. Lives as long as the process.
struct Event {
  cudaEvent_t handle = nullptr;
  std::uint64_t joins = 0; ///< Device::joins when it was last recorded
};

/// What a rank knows of a collective of the side table.
struct CollectiveState {
  cudaEvent_t completed = nullptr; ///< the last one has ended; for streams to wait for
};

/// The context of the cuda target. Streams wait for each other through events only.
struct Device : TargetContext {
  cudaStream_t compute = nullptr;
  std::array<cudaStream_t, channelCount> channels{}; ///< where collectives run, by Channel
  int multiprocessors = 1;
  NcclCommunicators *communicators = nullptr;
  DeviceProgress *progress = nullptr;       ///< what the host sees of the device; there before collectives start
  std::vector<CollectiveState> collectives; ///< as the side table
  std::uint64_t sequence = 0;               ///< of the collective started last; the same on every rank
  cudaEvent_t joined = nullptr;             ///< of joinStreams
  /// How often all streams have been joined, and the sequence of the last collective before that. Of what lies before,
  /// nothing is waited for any more: it may be in a graph, or outside the one that is being captured.
  std::uint64_t joins = 0;
  std::uint64_t joinedSequence = 0;
  /// While streams capture: the collectives started so far.
  std::optional<std::vector<int>> captured;
  StepTape *tape = nullptr; ///< takes times while it is set
  /// What the step before started for the next one is gone (`discard`).
  bool leftoversDiscarded = false;
  double timeoutSeconds = 100;
  bool allowsTf32 = false;                  ///< in products and convolutions of f32
  unsigned long long *indexFault = nullptr; ///< where kernels tell of an index outside its axis (index_faults.h)
  Tuner *tuner = nullptr; ///< chooses the algorithms of products; null: each takes the library's favourite
};

inline Device &deviceOf(const Context &context) { return *static_cast<Device *>(context.target); }

/// For order alone, without times. Throws Failure{internal}.
cudaEvent_t makeEvent();

/// Streams and events. Collectives have a higher priority than compute: their few blocks should not queue behind a
/// matrix product's thousands.
void openDevice(Device &device, std::size_t collectives);
void closeDevice(Device &device);

/// Everything that was enqueued so far lies before everything that will be, on every stream.
void noteJoined(Device &device);

/// Records an event that the host asks for, not streams: in a graph, each launch records it.
void recordForHost(const Device &device, cudaEvent_t event, cudaStream_t stream);

/// Waits until the device has come to the event, however long it takes, as long as some rank gets on; throws
/// Failure{timeout} that names the collective that hangs when none has for `timeoutSeconds`.
void synchronize(const Device &device, cudaEvent_t event);
/// The same for all that compute was given.
void synchronizeCompute(const Device &device);

} // namespace fsdpc::rt
