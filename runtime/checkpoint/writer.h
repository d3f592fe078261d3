// Writes checkpoints while the training goes on.
//
// Each rank copies its slices into memory that it mapped at the start (or writes them at once, with
// `--checkpoint_staging off`), and a thread writes its file, with hashes, into the unfinished folder. A rank is done
// when the record of its file is there. The thread of rank 0 waits for all records, writes the manifest and renames the
// folder: the ranks need no messages for it, only a folder that all of them see.
#pragma once

#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/common/platform.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace fsdpc::rt {

struct CheckpointSettings {
  std::string folder;
  std::string runId;           ///< the same on every rank, another one for every run
  bool isStaged = true;        ///< copies the state, and writes it while the training goes on
  std::int64_t keepLatest = 0; ///< 0: all
};

/// A checkpoint that has its name.
struct SavedCheckpoint {
  std::int64_t step = 0;
  std::string path;
  std::int64_t bytes = 0;       ///< of all ranks
  double copyMicroseconds = 0;  ///< for which the training stood still
  double writeMicroseconds = 0; ///< until the checkpoint had its name
};

class CheckpointWriter {
public:
  /// Maps the memory of the copy and starts the thread. Throws Failure{memory}.
  CheckpointWriter(const ProgramInfo &program, const Context &context, CheckpointSettings settings);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter &) = delete;
  CheckpointWriter &operator=(const CheckpointWriter &) = delete;

  /// Saves the state as the functions called so far leave it. Waits for the checkpoint before it, if that is not
  /// written yet. `beat` is called repeatedly while it waits or writes. Throws Failure{storage}, also of the previous
  /// checkpoint.
  void save(const TrainingState &state, const std::function<void()> &beat);
  /// Waits until this rank has written its part of every checkpoint and, on rank 0, they have their names. Throws as
  /// above.
  void wait(const std::function<void()> &beat);
  /// Throws the failure of the thread, if there is one. Does not wait.
  void check();
  /// Rank 0: a checkpoint that got its name since the last call.
  std::optional<SavedCheckpoint> takeSaved();

  std::int64_t stagingBytes() const { return settings.isStaged ? myBytes : 0; }

private:
  using Clock = std::chrono::steady_clock;
  /// Returns `bytes` of a slice from byte `offset`.
  using Source = std::function<const std::byte *(std::size_t slice, std::int64_t offset, std::int64_t bytes)>;

  void copyState();
  void saveAtOnce(const std::function<void()> &beat);
  void discard();
  void serve();
  void write(const Source &source, const std::function<void()> &beat);
  void finish(const std::function<void()> &beat);
  Manifest collect(const std::function<void()> &beat) const;
  void awaitRecord(int rank, const std::function<void()> &beat) const;
  void addRecord(Manifest &manifest, int rank) const;
  std::string recordPath(int rank) const;

  const ProgramInfo &program;
  const Context &context;
  const CheckpointSettings settings;
  const CheckpointLayout layout;
  const std::vector<TensorSlice> slices;
  const std::int64_t myBytes;
  std::byte *staging = nullptr;

  TrainingState state;    ///< of the checkpoint being written
  std::string unfinished; ///< its folder
  Clock::time_point began;
  double copyMicroseconds = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool isBusy = false;
  std::atomic<bool> isEnding{false};
  std::exception_ptr failure;
  std::optional<SavedCheckpoint> saved;
  std::thread thread;
};

} // namespace fsdpc::rt
