#include "runtime/checkpoint/writer.h"

#include "runtime/checkpoint/folder.h"
#include "runtime/common/arena_access.h"
#include "runtime/common/json.h"
#include "runtime/common/safetensors.h"
#include "runtime/common/step_guard.h"
#include "runtime/common/thread.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace fsdpc::rt {
namespace {

constexpr auto pollInterval = std::chrono::milliseconds(2);
/// How long a run that ends early waits for the last checkpoint.
constexpr auto lastWait = std::chrono::seconds(20);

double microsecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

std::byte *mapStaging(std::int64_t bytes) {
  if (bytes == 0)
    return nullptr;
  void *memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED)
    throw Failure(ExitCode::memory, "cannot map " + std::to_string(bytes) + " bytes for the copy of a checkpoint: " +
                                        std::strerror(errno) + "; --checkpoint_staging off needs none");
  return static_cast<std::byte *>(memory);
}

/// The record of a rank: {"bytes": n, "header_hash": "...", "hashes": ["...", ...]}, the hashes by slice.
struct Record {
  ManifestFile file;
  std::vector<std::string> hashes;
};

std::string recordText(const Record &record) {
  std::string hashes = "[";
  for (const std::string &hash : record.hashes)
    hashes += (hashes.size() > 1 ? "," : "") + jsonString(hash);
  return JsonObject()
      .add("bytes", record.file.bytes)
      .add("header_hash", hexOf({record.file.headerHash}))
      .addRaw("hashes", hashes + "]")
      .str();
}

std::vector<std::uint64_t> requireHashes(const JsonReader &json) {
  const auto hashes = hashesFrom(json.value());
  if (!hashes)
    json.fail("expected hashes");
  return *hashes;
}

} // namespace

CheckpointWriter::CheckpointWriter(const ProgramInfo &program, const Context &context, CheckpointSettings given)
    : program(program), context(context), settings(std::move(given)), layout(program),
      slices(layout.slicesOf(context.rank)), myBytes(layout.bytesOf(context.rank)) {
  if (!settings.isStaged)
    return;
  staging = mapStaging(myBytes);
  thread = startThread([this] { serve(); });
}

CheckpointWriter::~CheckpointWriter() {
  if (thread.joinable()) {
    {
      const std::lock_guard lock(mutex);
      isEnding = true;
    }
    changed.notify_all();
    thread.join();
  }
  if (staging)
    ::munmap(staging, static_cast<std::size_t>(myBytes));
}

void CheckpointWriter::save(const TrainingState &given, const std::function<void()> &beat) {
  wait(beat);
  began = Clock::now();
  state = given;
  unfinished = settings.folder + "/" + stepFolderName(state.step) + ".tmp-" + settings.runId;
  if (!settings.isStaged)
    return saveAtOnce(beat);
  copyState();
  copyMicroseconds = microsecondsSince(began);
  {
    const std::lock_guard lock(mutex);
    isBusy = true;
  }
  changed.notify_all();
}

void CheckpointWriter::saveAtOnce(const std::function<void()> &beat) {
  try {
    write(
        [&](std::size_t slice, std::int64_t offset, std::int64_t bytes) {
          const Place place = slices[slice].place;
          return readArena(context, {place.space, place.offsetBytes + offset}, bytes);
        },
        beat);
    copyMicroseconds = microsecondsSince(began);
    finish(beat);
  } catch (...) {
    discard();
    throw;
  }
}

/// What cannot be finished should not fill the disk. Other ranks still write to the folder, and must not fail for want
/// of it before this one says why the run ends; the next run removes it.
void CheckpointWriter::discard() {
  try {
    removeFile(unfinished + "/" + rankFileName(context.rank));
    removeFile(recordPath(context.rank));
  } catch (const Failure &) {
  }
}

void CheckpointWriter::copyState() {
  std::byte *to = staging;
  for (const TensorSlice &slice : slices) {
    const std::int64_t bytes = slice.elements * byteSize(layout.tensors()[slice.tensor].dtype);
    for (std::int64_t done = 0; done < bytes; done += arenaPieceBytes) {
      const std::int64_t piece = std::min(arenaPieceBytes, bytes - done);
      std::memcpy(to, readArena(context, {slice.place.space, slice.place.offsetBytes + done}, piece),
                  static_cast<std::size_t>(piece));
      to += piece;
    }
  }
}

/// The thread.
void CheckpointWriter::serve() {
  leaveOutThisThread();
  std::vector<std::int64_t> offsets;
  std::int64_t end = 0;
  for (const TensorSlice &slice : slices) {
    offsets.push_back(end);
    end += slice.elements * byteSize(layout.tensors()[slice.tensor].dtype);
  }
  const Source source = [&](std::size_t slice, std::int64_t offset, std::int64_t) {
    return staging + offsets[slice] + offset;
  };
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return isBusy || isEnding; });
    if (!isBusy)
      return;
    lock.unlock();
    std::exception_ptr caught;
    try {
      write(source, [] {});
      finish([] {});
    } catch (...) {
      caught = std::current_exception();
      discard();
    }
    lock.lock();
    failure = caught;
    isBusy = false;
    changed.notify_all();
    if (failure)
      return;
  }
}

void CheckpointWriter::write(const Source &source, const std::function<void()> &beat) {
  makeFolders(unfinished);
  std::vector<TensorSpec> specs;
  for (const TensorSlice &slice : slices) {
    const CheckpointTensor &tensor = layout.tensors()[slice.tensor];
    specs.push_back({tensor.name, elementType(tensor.dtype), {slice.elements}});
  }
  const std::string name = rankFileName(context.rank);
  SafetensorsWriter file(unfinished + "/" + name, specs);
  Record record{{name, file.fileBytes(), file.headerHash()}, {}};
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::size_t tensor = *file.find(specs[i].name);
    std::vector<std::uint64_t> hashes;
    for (std::int64_t done = 0; done < file.sizeBytes(tensor); done += checkpointBlockBytes) {
      const std::int64_t bytes = std::min(checkpointBlockBytes, file.sizeBytes(tensor) - done);
      const std::byte *data = source(i, done, bytes);
      hashes.push_back(checkpointHash(data, bytes));
      file.writeRange(tensor, done, data, bytes);
      beat();
    }
    record.hashes.push_back(hexOf(hashes));
  }
  file.commit();
  writeFile(recordPath(context.rank), recordText(record));
}

std::string CheckpointWriter::recordPath(int rank) const {
  return unfinished + "/rank-" + std::to_string(rank) + ".json";
}

/// Rank 0 makes the folder a checkpoint.
void CheckpointWriter::finish(const std::function<void()> &beat) {
  if (context.rank != 0)
    return;
  const Manifest manifest = collect(beat);
  for (int rank = 0; rank < program.worldSize; ++rank)
    removeFile(recordPath(rank));
  writeFile(unfinished + "/" + manifestName, manifestText(manifest));
  syncFolder(unfinished);
  SavedCheckpoint result{state.step, settings.folder + "/" + stepFolderName(state.step), 0, copyMicroseconds, 0};
  // Left by an earlier run, which had gone further, but damaged since: this run could not go on from it.
  if (folderExists(result.path))
    removeCheckpoint({state.step, result.path});
  renameDurably(unfinished, result.path);
  result.writeMicroseconds = microsecondsSince(began);
  for (const ManifestFile &file : manifest.files)
    result.bytes += file.bytes;
  std::vector<std::int64_t> kept = {state.step};
  if (state.best)
    kept.push_back(state.best->step);
  removeOldCheckpoints(settings.folder, settings.keepLatest, kept);
  const std::lock_guard lock(mutex);
  saved = result;
}

Manifest CheckpointWriter::collect(const std::function<void()> &beat) const {
  Manifest manifest;
  manifest.modelName = program.modelName;
  manifest.planHash = program.planHash;
  manifest.optimizer = program.optimizer;
  manifest.worldSize = program.worldSize;
  manifest.training = state;
  if (program.settingsJson && program.settingsJson[0])
    manifest.compiledJson = program.settingsJson;
  manifest.onnx = {program.onnxDataFile ? program.onnxDataFile : "", program.onnxDataBytes};
  for (const CheckpointTensor &tensor : layout.tensors()) {
    const ParameterInfo &parameter = program.parameters[static_cast<std::size_t>(tensor.parameter)];
    ManifestTensor entry{
        tensor.name, elementType(tensor.dtype), tensor.dims, tensor.elements, {}, tensor.isState, {}, 0};
    if (!tensor.isState) {
      if (parameter.onnxInitializer[0] && !parameter.onnxDType) // else it has no place in the model as it is
        entry.onnxPermutation.assign(parameter.onnxPermutation, parameter.onnxPermutation + parameter.shape.rank);
      entry.onnxOffsetBytes = parameter.onnxOffsetBytes;
    }
    manifest.tensors.push_back(std::move(entry));
  }
  for (int rank = 0; rank < program.worldSize; ++rank) {
    awaitRecord(rank, beat);
    addRecord(manifest, rank);
  }
  return manifest;
}

/// A rank that could not write ends the run by itself. But if this run is ending, it may never write its record.
void CheckpointWriter::awaitRecord(int rank, const std::function<void()> &beat) const {
  Clock::time_point ending{};
  while (!fileExists(recordPath(rank))) {
    if (isEnding && ending == Clock::time_point{})
      ending = Clock::now();
    if (isEnding && Clock::now() - ending > lastWait)
      throw Failure(ExitCode::storage, unfinished + ": rank " + std::to_string(rank) + " has not written its part");
    std::this_thread::sleep_for(pollInterval);
    beat();
  }
}

void CheckpointWriter::addRecord(Manifest &manifest, int rank) const {
  const std::string path = recordPath(rank), text = readFile(path);
  JsonReader json(text, path);
  ManifestFile file{rankFileName(rank), 0, 0};
  const std::size_t index = manifest.files.size();
  const std::vector<TensorSlice> written = layout.slicesOf(rank);
  json.expect(JsonToken::beginObject, "an object");
  while (json.next() == JsonToken::key) {
    const std::string key = json.value();
    if (key == "bytes") {
      json.expect(JsonToken::number, "a size");
      file.bytes = json.unsignedInteger();
    } else if (key == "header_hash") {
      json.expect(JsonToken::string, "a hash");
      file.headerHash = requireHashes(json).at(0);
    } else {
      json.expect(JsonToken::beginArray, "hashes");
      for (const TensorSlice &slice : written) {
        json.expect(JsonToken::string, "the hashes of a slice");
        manifest.tensors[slice.tensor].slices.push_back({index, slice.first, slice.elements, requireHashes(json)});
      }
      json.expect(JsonToken::endArray, "the end of the hashes");
    }
  }
  manifest.files.push_back(file);
}

void CheckpointWriter::wait(const std::function<void()> &beat) {
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, pollInterval, [&] { return !isBusy; }))
    beat();
  if (failure)
    std::rethrow_exception(std::exchange(failure, nullptr));
}

void CheckpointWriter::check() {
  const std::lock_guard lock(mutex);
  if (failure)
    std::rethrow_exception(std::exchange(failure, nullptr));
}

std::optional<SavedCheckpoint> CheckpointWriter::takeSaved() {
  const std::lock_guard lock(mutex);
  return std::exchange(saved, std::nullopt);
}

} // namespace fsdpc::rt
