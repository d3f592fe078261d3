// One rank's GPU: streams, events, and errors of CUDA calls.
#pragma once

#include "runtime/common/failure.h"
#include "runtime/common/program.h"

#include <cuda_runtime.h>

#include <array>
#include <optional>
#include <vector>

// Precedes each variable of an emitted program. Ranks that are threads of one process each have their own copy.
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

/// A point in a stream that others can wait for. Lives as long as the process.
struct Event {
  cudaEvent_t handle = nullptr;
  std::uint64_t joins = 0; ///< Device::joins at the last record
};

/// A rank's state of a collective in the side table.
struct CollectiveState {
  cudaEvent_t completed = nullptr; ///< end of the last one, for streams to wait for
};

/// The context of the cuda target. Streams wait for each other through events only.
struct Device : TargetContext {
  cudaStream_t compute = nullptr;
  std::array<cudaStream_t, channelCount> channels{}; ///< streams of collectives, by Channel
  int multiprocessors = 1;
  NcclCommunicators *communicators = nullptr;
  DeviceProgress *progress = nullptr;       ///< what the host sees of the device; set before collectives start
  std::vector<CollectiveState> collectives; ///< indexed as the side table
  std::uint64_t sequence = 0;               ///< of the collective started last; the same on every rank
  cudaEvent_t joined = nullptr;             ///< of joinStreams
  /// How often all streams have been joined, and the sequence of the last collective before that. Work before the last
  /// join is no longer waited for: it may be in a graph, or outside the one that is being captured.
  std::uint64_t joins = 0;
  std::uint64_t joinedSequence = 0;
  /// During stream capture: the collectives started so far.
  std::optional<std::vector<int>> captured;
  StepTape *tape = nullptr; ///< measures times while set
  /// The collectives that the previous step started for the next one were dropped (`discard`).
  bool leftoversDiscarded = false;
  double timeoutSeconds = 100;
  bool allowsTf32 = false;                  ///< in matmuls and convolutions of f32
  unsigned long long *indexFault = nullptr; ///< where kernels report an index outside its axis (index_faults.h)
  Tuner *tuner = nullptr;                   ///< chooses matmul algorithms; null: each uses the library's first choice
};

inline Device &deviceOf(const Context &context) { return *static_cast<Device *>(context.target); }

/// An event for ordering only, without timing. Throws Failure{internal}.
cudaEvent_t makeEvent();

/// Creates streams and events. Collectives have a higher priority than compute, so that their few blocks do not queue
/// after the thousands of a matmul.
void openDevice(Device &device, std::size_t collectives);
void closeDevice(Device &device);

/// All streams were joined: work enqueued so far, on any stream, precedes work enqueued from now on.
void noteJoined(Device &device);

/// Records an event that the host queries, not streams. In a graph, each launch records it.
void recordForHost(const Device &device, cudaEvent_t event, cudaStream_t stream);

/// Waits until the device has reached the event, for as long as some rank makes progress. Throws Failure{timeout},
/// naming the collective that hangs, if no rank has for `timeoutSeconds`.
void synchronize(const Device &device, cudaEvent_t event);
/// The same for all work enqueued on compute.
void synchronizeCompute(const Device &device);

} // namespace fsdpc::rt
